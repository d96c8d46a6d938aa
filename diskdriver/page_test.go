package diskdriver

import (
	"fmt"
	"maps"
	"slices"
	"strings"
	"testing"

	"google.golang.org/grpc/codes"

	"github.com/topodisk/topodisk/diskdriver/disk"
	"github.com/topodisk/topodisk/test/golden"
)

const errorsPage = "../docs/errors.md"

// TestTheErrorsPageIsCurrent holds docs/errors.md against the table that
// translates errors.
func TestTheErrorsPageIsCurrent(t *testing.T) {
	golden.Page(t, errorsPage, errorsText(t))
}

// TestTheChineseErrorsPageIsCurrent holds docs/zh/errors.md against the same table, and testdata/zh.yaml.
func TestTheChineseErrorsPageIsCurrent(t *testing.T) {
	golden.ChinesePage(t, "../docs/zh/errors.md", errorsText(t), "testdata/zh.yaml", "gRPC code")
}

const errorsIntro = `# Errors

<!-- Made from the table in diskdriver/status.go that translates errors, by make docs-update. -->

Every error of disk-driver is one of the kinds below. It is shown in an event: of the claim when a volume is created, expanded
or modified, of the Pod when it is attached, and of the PersistentVolume when it is deleted. For snapshots it is in the status of
the VolumeSnapshotContent. A message such as

    ResourceExhausted: no zone and disk type allowed has a disk to give: cloud_essd of 20 GiB in cn-hangzhou-h:
    CreateDisk: OperationDenied.NoStock: The resource is out of stock. (request ID 473469C7-AA6F-4DC5-B3DB-A3DC0DE3C83E)

has the gRPC code, the attempted operation, the ECS action with its disk and instance, ECS's own code and message, and ECS's
request ID for a support ticket. [ecs-codes.md](ecs-codes.md) has the kind of every code of ECS.

## For programs

The words of a message may change. The kind stands in a detail ` + "`google.rpc.ErrorInfo`" + ` of the gRPC status, of the domain
` + "`topodisk`, and disk-provisioner annotates its events `ProvisioningFailed`, `VolumeFailedDelete` and `CapacityUnknown`" + ` with it.

| Annotation | In the detail | Content |
|---|---|---|
| ` + "`topodisk.io/error-kind` | `reason`" + ` | the kind in capitals, such as ` + "`OUT_OF_STOCK`" + ` |
| ` + "`topodisk.io/ecs-action` | `action`" + ` | ECS's action |
| ` + "`topodisk.io/ecs-code` | `code`" + ` | ECS's code |
| ` + "`topodisk.io/ecs-request-id` | `requestId`" + ` | ECS's request ID |
| ` + "`topodisk.io/zones` | `zones`" + ` | the zones that had no disk, separated by commas |
| ` + "`topodisk.io/more-types-from` | `moreTypesFrom`" + ` | of a disk that was out of stock: the size in bytes from which more disk types of the class are possible |

What disk-provisioner refuses before it asks the driver has the kind ` + "`INVALID`, `NO_TOPOLOGY`, `NODE_GONE`, `NODE_UNREADY`,\n" +
	"`NODE_NOT_ALLOWED`, `NODE_MISLABELLED` or `SNAPSHOT_NOT_READY`" + `.

## Kinds

| Kind | gRPC code | Meaning, and content of the message | What to do |
|---|---|---|---|
`

const codesIntro = `
A call that would return ` + "`Unavailable` returns `DeadlineExceeded`" + ` if it has timed out.

## What the sidecars do

They act on the gRPC code alone. "Over" means that no operation of this call continues. "In progress" means that the call may have
taken effect; then it is never dropped, even if the claim is deleted.

| gRPC code | disk-provisioner, creating a volume | csi-attacher, csi-resizer |
|---|---|---|
`

func errorsText(t *testing.T) string {
	var text strings.Builder
	text.WriteString(errorsIntro)
	used := map[codes.Code]bool{codes.DeadlineExceeded: true}
	for k := disk.Kind(0); int(k) < len(answers); k++ {
		a := answers[k]
		if a.says == "" || a.todo == "" {
			t.Errorf("%v: what it says or what to do is missing", k)
		}
		used[a.code] = true
		fmt.Fprintf(&text, "| %s | `%s` | %s | %s |\n", k, a.code, a.says, a.todo)
	}
	text.WriteString(codesIntro)
	for _, code := range slices.Sorted(maps.Keys(used)) {
		do, known := sidecarsDo[code]
		if !known {
			t.Errorf("what the sidecars do on %v is missing", code)
		}
		fmt.Fprintf(&text, "| `%s` | %s | %s |\n", code, do.provisioner, do.others)
	}
	return text.String()
}
