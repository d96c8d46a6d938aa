package state

import "strings"

// This table has the instance types whose figures are public. DiskQuantity,
// NvmeSupport and disk categories of a family are from the pages under from;
// a type for which no page states how many disks it takes is not here, which
// is why the families g8i, g8a, g8y, g9i, u2i and e are missing: their pages
// state everything but that. Such a type has to be declared.
//
// A page that counts data disks means one disk less than DiskQuantity, which
// counts the system disk. NvmeSupport is required where the family's page says
// that it supports the NVMe protocol, for ECS's API knows no other value for
// that, and unsupported where the page does not say so.
//
// Some families have a high-density mode with another limit
// (DensityDiskQuantity). No public page says which types, nor how many disks,
// so that the simulator does not have it.

// source is a public page that rows of the table are from.
type source struct {
	url  string
	date string // of the page, or when it was read if the page bears none: YYYY-MM
}

var (
	// familyPage lists the instance families with their metrics; it bears no date.
	familyPage = source{"https://www.alibabacloud.com/help/en/ecs/user-guide/overview-of-instance-families", "2026-11"}
	// limitsPage of 2021: 64 data disks on instances of g6se, 16 on those of any other family.
	limitsPage = source{"https://www.alibabacloud.com/help/doc-detail/25412.htm", "2021-07"}
	// families2021 is the source of the documentation as it was then: intl.en-US,
	// the pages General purpose instance families and Retired instance types.
	families2021 = source{"https://github.com/AlibabaCloudDocs/ecs", "2021-07"}
	// csiReplies are replies of DescribeInstanceTypes in another driver's tests,
	// as they are now; when they were recorded they do not say.
	csiReplies = source{"https://github.com/kubernetes-sigs/alibaba-cloud-csi-driver", "2026-08"}
)

// typesOf are the types of a family that take equally many disks.
type typesOf struct {
	disks int    // DiskQuantity: the system disk is one of them
	names string // of the types, without the family, apart by spaces
}

// familyRow is the types of a family. They differ in DiskQuantity only.
type familyRow struct {
	name  string // such as ecs.g7
	nvme  string
	takes string // disk categories, apart by spaces; cloud alone means not I/O optimized
	types []typesOf
	from  []source
	note  string // what its sources disagree on, or leave out
}

const (
	essdAuto       = "cloud_auto cloud_essd"
	essdRegional   = essdAuto + " cloud_regional_disk_auto"
	essdEphemeral  = essdRegional + " elastic_ephemeral_disk_premium elastic_ephemeral_disk_standard"
	essdAutoSSD    = "cloud_auto cloud_efficiency cloud_essd cloud_ssd"
	essdRegionSSD  = "cloud_auto cloud_efficiency cloud_essd cloud_regional_disk_auto cloud_ssd"
	ssdEfficiency  = "cloud_efficiency cloud_ssd"
	fifthSizes     = ".large .xlarge .2xlarge .3xlarge .4xlarge .6xlarge .8xlarge .16xlarge"
	sixthSizes     = ".large .xlarge .2xlarge .3xlarge .4xlarge .6xlarge .8xlarge .13xlarge .26xlarge"
	fewerThan2021  = "the limits of 2021 say 16 data disks for all of its sizes; this is the newer page"
	figureIsOf2021 = "newer pages don't say how many disks it takes"
)

// instanceFamilies is sorted by name.
var instanceFamilies = []familyRow{
	// Compute optimized.
	{"ecs.c5", "unsupported", essdAutoSSD, []typesOf{{17, fifthSizes}}, []source{familyPage, limitsPage}, figureIsOf2021},
	{"ecs.c6", "unsupported", essdAutoSSD, []typesOf{{17, sixthSizes}}, []source{familyPage, limitsPage}, figureIsOf2021},
	{"ecs.c7", "unsupported", essdRegional, []typesOf{
		{9, ".large .xlarge"}, {17, ".2xlarge .3xlarge .4xlarge .6xlarge"}, {25, ".8xlarge"}, {33, ".16xlarge .32xlarge"},
	}, []source{familyPage}, fewerThan2021},
	{"ecs.c7se", "required", essdRegional, []typesOf{
		{17, ".large .xlarge .2xlarge .3xlarge"}, {25, ".4xlarge .6xlarge"}, {31, ".8xlarge"}, {57, ".16xlarge"},
	}, []source{familyPage}, ""},
	// Big data, with local disks.
	{"ecs.d2s", "unsupported", essdAutoSSD, []typesOf{{17, ".5xlarge .10xlarge .20xlarge"}}, []source{familyPage, limitsPage}, figureIsOf2021},
	// Bare metal.
	{"ecs.ebmc6", "unsupported", essdRegionSSD, []typesOf{{17, ".26xlarge"}}, []source{familyPage, limitsPage}, figureIsOf2021},
	{"ecs.ebmg6", "unsupported", essdRegionSSD, []typesOf{{17, ".26xlarge"}}, []source{familyPage, limitsPage}, figureIsOf2021},
	{"ecs.ebmg7se", "required", essdEphemeral, []typesOf{{33, ".32xlarge"}}, []source{familyPage}, ""},
	{"ecs.ebmgn8v", "required", essdEphemeral, []typesOf{{32, ".48xlarge"}}, []source{familyPage}, ""},
	// General purpose.
	{"ecs.g5", "unsupported", essdAutoSSD, []typesOf{{17, fifthSizes}}, []source{familyPage, limitsPage}, figureIsOf2021},
	{"ecs.g6", "unsupported", essdRegionSSD, []typesOf{{17, sixthSizes}}, []source{familyPage, limitsPage}, figureIsOf2021},
	{"ecs.g6se", "unsupported", "cloud_essd", []typesOf{
		{17, ".large .xlarge .2xlarge"}, {25, ".4xlarge"}, {33, ".8xlarge"}, {49, ".13xlarge"}, {65, ".26xlarge"},
	}, []source{families2021}, "the limits of 2021 say 64 data disks for all of its sizes"},
	{"ecs.g7", "unsupported", essdRegional, []typesOf{
		{9, ".large .xlarge"}, {17, ".2xlarge .3xlarge .4xlarge .6xlarge"}, {25, ".8xlarge"}, {33, ".16xlarge .32xlarge"},
	}, []source{familyPage, csiReplies}, fewerThan2021 + "; a reply of DescribeInstanceTypes, of unknown age, has 17 for ecs.g7.xlarge"},
	{"ecs.g7se", "required", essdRegional, []typesOf{
		{17, ".large .xlarge .2xlarge .3xlarge"}, {25, ".4xlarge .6xlarge"}, {31, ".8xlarge"}, {57, ".16xlarge"},
	}, []source{familyPage}, ""},
	// GPU.
	{"ecs.gn6i", "unsupported", essdAutoSSD, []typesOf{
		{17, "-c4g1.xlarge -c8g1.2xlarge -c16g1.4xlarge -c24g1.6xlarge"},
	}, []source{familyPage, limitsPage}, figureIsOf2021},
	{"ecs.gn8is", "required", essdEphemeral, []typesOf{
		{17, ".2xlarge .4xlarge"}, {33, "-2x.8xlarge -4x.16xlarge"}, {65, "-8x.32xlarge"},
	}, []source{familyPage}, ""},
	{"ecs.gn8v", "required", essdEphemeral, []typesOf{
		{17, ".4xlarge .6xlarge"}, {25, "-2x.8xlarge -4x.8xlarge"}, {33, "-2x.12xlarge -8x.16xlarge"}, {49, "-4x.24xlarge"}, {65, "-8x.48xlarge"},
	}, []source{familyPage}, ""},
	{"ecs.gn8v-tee", "required", essdEphemeral, []typesOf{
		{17, ".4xlarge .6xlarge"}, {33, "-8x.16xlarge"}, {65, "-8x.48xlarge"},
	}, []source{familyPage}, ""},
	// With local SSDs.
	{"ecs.i2", "unsupported", ssdEfficiency, []typesOf{{17, ".xlarge .2xlarge .4xlarge .8xlarge .16xlarge"}}, []source{familyPage, limitsPage}, figureIsOf2021},
	// Compute intensive.
	{"ecs.ic5", "unsupported", essdAutoSSD, []typesOf{{17, ".large .xlarge .2xlarge .3xlarge .4xlarge"}}, []source{familyPage, limitsPage}, figureIsOf2021},
	// Memory optimized.
	{"ecs.r5", "unsupported", essdAutoSSD, []typesOf{{17, fifthSizes}}, []source{familyPage, limitsPage}, figureIsOf2021},
	{"ecs.r6", "unsupported", essdRegionSSD, []typesOf{{17, sixthSizes}}, []source{familyPage, limitsPage}, figureIsOf2021},
	{"ecs.r7", "unsupported", essdRegional, []typesOf{
		{9, ".large .xlarge"}, {17, ".2xlarge"}, {25, ".3xlarge .4xlarge .6xlarge .8xlarge"}, {33, ".16xlarge .32xlarge"},
	}, []source{familyPage}, fewerThan2021},
	{"ecs.r7se", "required", essdRegional, []typesOf{
		{17, ".large .xlarge .2xlarge .3xlarge"}, {25, ".4xlarge .6xlarge"}, {31, ".8xlarge"}, {57, ".16xlarge"},
	}, []source{familyPage}, ""},
	// Retired, of the first generation.
	{"ecs.s1", "unsupported", "cloud", []typesOf{{17, ".small .medium .large"}}, []source{families2021, limitsPage}, ""},
	// Virtual GPU.
	{"ecs.sgn8ia", "required", essdRegional, []typesOf{
		{9, "-m2.xlarge -m4.2xlarge"}, {17, "-m8.4xlarge"}, {33, "-m16.8xlarge -m24.12xlarge -m48.24xlarge"},
	}, []source{familyPage}, ""},
	// Universal.
	{"ecs.u1", "unsupported", essdAuto + " cloud_essd_entry", []typesOf{{9, "-c1m4.xlarge"}}, []source{familyPage, csiReplies}, "the family's page does not say how many disks it takes"},
	// Virtual GPU, of an older generation.
	{"ecs.vgn6i", "unsupported", ssdEfficiency, []typesOf{{17, "-m4.xlarge"}}, []source{familyPage, limitsPage}, figureIsOf2021},
}

// instanceTypes returns the types of a family.
func (r familyRow) instanceTypes() []InstanceType {
	var list []InstanceType
	for _, sizes := range r.types {
		for name := range strings.FieldsSeq(sizes.names) {
			list = append(list, InstanceType{
				ID: r.name + name, Family: r.name, DiskQuantity: sizes.disks, NVMe: r.nvme,
				Categories: strings.Fields(r.takes), NotIOOptimized: r.takes == "cloud",
			})
		}
	}
	return list
}
