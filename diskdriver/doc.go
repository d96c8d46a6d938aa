// Package diskdriver is a CSI plugin (container-storage-interface, v1) for ECS
// disks: gRPC comes in, calls of ECS go out.
//
// # What is promised
//
// Every call can be repeated, by any caller and to any replica, and leads to the
// same end (CSI spec, "Timeouts" and the idempotency of each call). Beyond that:
//
//   - CreateVolume answers with a code that callers take for the end of it only if
//     no disk of the name exists, nor will come to exist; but for AlreadyExists,
//     which names the one that does (package creation).
//   - ControllerPublishVolume is OK only when ECS shows the attachment, and
//     ControllerUnpublishVolume only when ECS has shown or said that the instance
//     hasn't the disk, and no call can attach it any more (package attachment).
//   - A disk that another instance uses is left there, but for a regional one if
//     the operator says so (Config.ForceRegional). What is another cluster's is
//     neither changed nor deleted (disk.Owner).
//   - A node formats a disk only if it was made empty and was never attached
//     before, or if a format of this volume was begun on it and cut short, and no
//     byte speaks against it; or if every byte was read and is zero (package node).
//
// # What may fail
//
// ECS may act and its answer be lost; it may answer and act later; its reads lag
// behind what it has done, and forget for a moment what they have shown; it
// forgets client tokens; it throttles the calls of an account, whoever makes them.
// People and other programs change disks as well. The process may be killed or
// suspended between any two calls, two replicas may work at the same time for a
// while, and the caller's time may be over at any moment.
//
// # How it is kept
//
// What must survive the process is in ECS: the tags of a disk say which volume and
// cluster it is of and whether it was ever attached (package disk), and client
// tokens follow from the volume's name. What a process remembers of names and
// attachments spares calls; a process that knows nothing asks.
//
// Every error of ECS gets a disk.Kind by one table (ecs/transport/codes.go), by
// whether the call may have had an effect. UnknownOutcome is never treated as a
// failure. status.go, and nothing else, turns a Kind into a gRPC code.
//
// A call that changes something is signed so that ECS refuses it when it arrives
// late (disk.RequestLifetime). So there is a moment after which a call without an
// answer can't have an effect any more, and what a read shows then is a proof. An
// ECS that refuses such signatures gets others, and a log says that there is no such
// moment (ecs/transport/clock.go).
//
// # Where to begin
//
// interceptors.go has what every call passes. The verbs have a file each:
// publish.go and unpublish.go here, which package attachment does the work for, and
// those of the packages volume and snapshot, of which controller is made.
// They say what they need of ECS in interfaces (cloud.go), which package ecs
// implements: the only code that knows ECS's API and its SDK. Package node is the other half of a driver: it serves the
// Node service and calls nobody.
package diskdriver
