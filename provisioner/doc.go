// Package provisioner turns PersistentVolumeClaims into CreateVolume calls and
// PersistentVolumes, and Released PersistentVolumes into DeleteVolume calls.
// It runs beside its CSI driver, in the same Pod, on one unix socket.
//
// # What is promised
//
//   - A volume that may exist is not forgotten: it gets a PersistentVolume, or it
//     is deleted, or it is kept and reported, whatever becomes of its claim, class
//     and node, and whichever process is killed when.
//   - A claim gets one volume, where its Pod can run: in the zone of the selected
//     node, or the claim returns to the scheduler (package topology).
//   - A volume is deleted only if its PersistentVolume says so and no other one
//     stands for it; if this process had it made and no PersistentVolume was saved;
//     or if the driver proves that it was never used.
//   - No namespace keeps the claims of another one waiting for long.
//
// # What may fail
//
// The driver's answer may be lost, or come after its caller has given up. Caches
// show the past. The API server may have carried out a write that failed, and
// refuse one for good. Claims, classes, nodes and PersistentVolumes change or go at
// any moment, and come back under the same name. The process may be killed between
// any two calls, and another one may lead before this one knows that it doesn't.
//
// # How it is kept
//
// The journal has the request of each volume that may exist, from before the driver
// is called until a PersistentVolume stands for the volume, the driver has said that
// there is none or that it was used and so is kept, or an operator has ended the
// record; a process that begins to lead repeats what it finds there. An
// open request stays as it was sent, to the byte, so the driver can answer a repeated
// one. Whether an answer is final is decided in one place (claim/outcome.go). Before
// something that can't be undone the API server is asked, not a cache. Writes are
// held back once the Lease is not certain any more (package internal/leader).
//
// # Where to begin
//
// claim/sync.go is the way of a claim, from top to bottom; deletion/delete.go that
// of a PersistentVolume that is released. Package request has what is pure: which
// claims are this provisioner's, what the driver is asked for, what a
// PersistentVolume says. A Controller wires both, with the caches and the journal
// that they share (controller.go), and repeats what an earlier process has left
// (recover.go).
package provisioner
