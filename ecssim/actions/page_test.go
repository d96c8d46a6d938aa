package actions

import (
	"fmt"
	"os"
	"strconv"
	"strings"
	"testing"

	"github.com/topodisk/topodisk/test/golden"
)

// docs/simulator.md shows how to add an action by one that is there.
func TestPageShowsAnAction(t *testing.T) {
	page, err := os.ReadFile("../../docs/simulator.md")
	if err != nil {
		t.Fatal(err)
	}
	file, err := os.ReadFile("describeregions.go")
	if err != nil {
		t.Fatal(err)
	}
	table, err := os.ReadFile("action.go")
	if err != nil {
		t.Fatal(err)
	}
	const row = "\tdescribeRegionsAction,\n"
	if !strings.Contains(string(page), "```\n"+string(file)+"```\n") {
		t.Error("the page does not show describeregions.go as it is")
	}
	if !strings.Contains(string(page), "```\n"+row+"```\n") || !strings.Contains(string(table), row) {
		t.Errorf("the page and the table do not both have the row %q", row)
	}
}

// ignored are the parameters that an action takes without any effect.
var ignored = map[string][]string{
	"AssumeRole":                {"ExternalId", "SourceIdentity"},
	"AttachDisk":                {"AdditionalInfo.EnableSRIOV", "AdditionalInfo.Identifier", "AdditionalInfo.SafeMode", "AdditionalInfo.TargetDevice"},
	"CreateSnapshot":            {"Category", "InstantAccess", "InstantAccessRetentionDays", "StorageLocationArn"},
	"CreateSnapshotGroup":       {"InstantAccess", "InstantAccessRetentionDays", "StorageLocationArn"},
	"DescribeAvailableResource": {"IoOptimized", "SystemDiskCategory", "NetworkCategory"},
	"DescribeInstances":         {"AdditionalAttributes.N"},
	"DescribeRegions":           {"InstanceChargeType", "ResourceType", "AcceptLanguage"},
	"DescribeSnapshotGroups":    {"AdditionalAttributes.N"},
	"DescribeTags":              {"Category"},
	"DescribeZones":             {"InstanceChargeType", "SpotStrategy", "AcceptLanguage"},
	"ModifyDiskSpec":            {"PerformanceControlOptions.IOPS", "PerformanceControlOptions.Throughput", "PerformanceControlOptions.Recover"},
}

// lacks says of every action of the API what it does not do, as far as that is known.
var lacks = map[string]string{
	"AddTags":                   "",
	"AssumeRole":                "`Policy` is checked for its form, and does not restrict the session",
	"AssumeRoleWithOIDC":        "it does not verify the token's signature; `Policy` is checked for its form, and does not restrict the session",
	"AttachDisk":                "it attaches no system disks: `Bootable`, `Password` and `KeyPairName` are refused",
	"CreateDisk":                "it creates no subscription disks: `InstanceId` is refused; no local disks",
	"CreateSnapshot":            "every snapshot is a standard one; there are no automatic snapshots",
	"CreateSnapshotGroup":       "every snapshot is a standard one",
	"DeleteDisk":                "",
	"DeleteSnapshot":            "",
	"DeleteSnapshotGroup":       "",
	"DescribeAvailableResource": "`DestinationResource` is DataDisk, InstanceType or Zone; instance types are always in stock",
	"DescribeDisks":             "every disk is pay-as-you-go; there are no policies of automatic snapshots and no images",
	"DescribeInstanceTypes":     "it shows family, DiskQuantity and NVMe support, not processors, memory or network; types without public figures are there only if they are declared",
	"DescribeInstances":         "it shows zone, type, status, tags, locks and metadata options, not image, network, processors or memory",
	"DescribeRegions":           "it shows only the region that is simulated",
	"DescribeSnapshotGroups":    "",
	"DescribeSnapshots":         "`Category` other than standard finds nothing; there are no images and no copies from other regions",
	"DescribeTags":              "it finds tags of disks, instances and snapshots only",
	"DescribeTasks":             "the only tasks are those of ModifyDiskSpec, and they can't be cancelled; `TaskGroupId` finds nothing",
	"DescribeZones":             "every zone has every instance type",
	"DetachDisk":                "",
	"GetCallerIdentity":         "the caller is the account or a role: there are no RAM users",
	"ListTagResources":          "it finds tags of disks, instances, snapshots and snapshot-consistent groups only",
	"ModifyDiskAttribute":       "the settings of automatic snapshots are stored, and no such snapshots are made",
	"ModifyDiskSpec":            "there is no payment: OrderId is empty",
	"RemoveTags":                "",
	"ResizeDisk":                "there is no payment: OrderId is empty",
	"TagResources":              "it tags disks, instances, snapshots and snapshot-consistent groups only",
	"UntagResources":            "it removes tags of disks, instances, snapshots and snapshot-consistent groups only",
}

const servesHead = `
<!-- Made from ecssim/actions, by make docs-update. -->

These actions of ECS (2014-05-26) and STS (2015-04-01), and the [metadata service](simulator.md) of instances. Any other action is
refused with InvalidAction.NotFound. Instances are added and released by ` + "`--instance`" + ` and the admin API, not by RunInstances. A parameter that
an action does not know is ignored and counted in ` + "`unknownParams` of `GET /_sim/state`" + `.

The third column is what is known to be missing. Where it is empty, nothing is known to be missing, but no action has been compared with the
real ECS.

| action | parameters without effect | what it does not do |
|---|---|---|
`

// The page for users of the simulator has a row for every action of the API.
func TestTheActionsPageIsCurrent(t *testing.T) {
	var made strings.Builder
	made.WriteString(servesHead)
	for _, name := range Names() {
		if byName[name].version == versionMetadata {
			continue
		}
		missing, said := lacks[name]
		if !said {
			t.Errorf("what %s does not do is not said", name)
		}
		parameters := ""
		if list := ignored[name]; list != nil {
			parameters = "`" + strings.Join(list, "`, `") + "`"
		}
		fmt.Fprintf(&made, "| %s | %s | %s |\n", name, parameters, missing)
	}
	golden.Section(t, "../../docs/ecs-on-a-laptop.md", "What it serves", made.String())
}

// A parameter without effect is one that the action takes, and that its file names in the declaration alone.
func TestIgnoredParametersHaveNoEffect(t *testing.T) {
	for action, names := range ignored {
		file, err := os.ReadFile(strings.ToLower(action) + ".go")
		if err != nil {
			t.Fatal(err)
		}
		declaration, code, _ := strings.Cut(string(file), "\n}\n")
		for _, name := range names {
			read := strconv.Quote(strings.TrimSuffix(name, ".N"))
			if !byName[action].takes(name) || !strings.Contains(declaration, strconv.Quote(name)) || strings.Contains(code, "Params["+read) || strings.Contains(code, "("+read) {
				t.Errorf("%s does something with %s, or does not take it", action, name)
			}
		}
	}
}
