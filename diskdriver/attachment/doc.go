// Package attachment publishes disks to instances and unpublishes them.
//
// ECS answers AttachDisk and DetachDisk before it has carried them out, a request may be on its way for disk.RequestLifetime, and
// DescribeDisks may show any state that the disk has had. So what is said to Kubernetes rests on these facts alone:
//
//   - Our own calls. A call is open from when it is sent until its effect is seen; one without an answer until RequestLifetime has passed
//     besides. A call that was not sent never happened. One that ECS refused may be the second that a proxy has made of one, so after a
//     refused attach nothing is known to be off. Whoever is asked first over a connection may follow another
//     replica, whose calls are taken for open until RequestLifetime has passed: csi-attacher ends when it loses its Lease, and its
//     connection with it, so one connection is one tenure.
//   - ECS's answers. DetachDisk is accepted for a disk that the instance has. InvalidDisk.AlreadyDetached, DependencyViolation and
//     InvalidInstanceId.NotFound say that it doesn't have it, and InvalidDiskId.NotFound that there is no such disk: no read says that.
//   - The order of ECS's own times. A disk keeps the DetachedTime of its last detach while it is attached again, so a read that shows a
//     later one than was shown with an attachment is later than the end of that attachment (page of DescribeDisks; disk.Later).
//   - The tag disk.HistoryTag. A read that shows the nonce that this process has set is later than the call that set it.
//
// Publish is OK when a read shows the disk on the instance that is later than this process's last detach of it and than the
// other replicas' work. Unpublish is OK when ECS shows a detach later than our attachment, or has answered that the instance doesn't have
// the disk, and no call of ours is open. So no call for a disk and an instance is open when an unpublish of it is OK. What one replica was
// asked to unpublish, the next one is asked to until that is OK, for the VolumeAttachment stays until then, and nobody makes another one
// of the same volume and node. So a publish never has to wait for another replica's detach.
//
// A disk for several instances has one DetachedTime, so of it only answers and nonces tell. Times that are the same, or too close
// (disk.Later), cost a call and no wait.
package attachment
