package disk

import (
	"fmt"
	"maps"
	"regexp"
	"slices"
	"strconv"
	"strings"
)

// key is what a parameter's name means for a P.
type key[P any] struct {
	set    func(p *P, value string) error       // nil: any value does; the error says what is allowed
	under  func(p *P, rest, value string) error // for a name that ends in "/": takes every name below it
	idle   string                               // why the parameter does nothing
	barred string                               // why it is refused, and what to do instead
}

// keyTable is the names that a class may have.
type keyTable[P any] map[string]key[P]

// SnapshotParameter names the snapshot that the class's disks are made from.
const SnapshotParameter = "csi.alibabacloud.com/disk-snapshot-id"

// otherLimit is what to do instead of limiting a volume's I/O.
const otherLimit = "choose a disk type and level with the limit that you want"

// classKeys are the parameters of a StorageClass: every name that the driver
// before topodisk honoured, and categoryAffinity.
var classKeys = keyTable[Parameters]{
	"type":                             {set: (*Parameters).setCategories},
	"performanceLevel":                 {set: (*Parameters).setLevels},
	"zoneId":                           {set: (*Parameters).setZones},
	"zoneid":                           {set: (*Parameters).setZones},
	"regionId":                         text(func(p *Parameters) *string { return &p.Region }),
	"fsType":                           {set: (*Parameters).setFilesystem},
	"fstype":                           {set: (*Parameters).setFilesystem},
	"csi.storage.k8s.io/fstype":        {set: (*Parameters).setFilesystem},
	"mkfsOptions":                      text(func(p *Parameters) *string { return &p.MkfsOptions }),
	"categoryAffinity":                 truth(func(p *Parameters) *bool { return &p.CategoryAffinity }),
	"volumeSizeAutoAvailable":          truth(func(p *Parameters) *bool { return &p.AtLeast20 }),
	"encrypted":                        truth(func(p *Parameters) *bool { return &p.Encrypted }),
	"kmsKeyId":                         text(func(p *Parameters) *string { return &p.KMSKeyID }),
	"alibabacloud.com/kms-key-id":      text(func(p *Parameters) *string { return &p.KMSKeyID }),
	"multiAttach":                      truth(func(p *Parameters) *bool { return &p.MultiAttach }),
	"provisionedIops":                  {set: (*Parameters).setIOPS},
	"burstingEnabled":                  truth(func(p *Parameters) *bool { return &p.Bursting }),
	"resourceGroupId":                  text(func(p *Parameters) *string { return &p.ResourceGroupID }),
	"storageClusterId":                 text(func(p *Parameters) *string { return &p.StorageClusterID }),
	"diskTags":                         {set: (*Parameters).setTags},
	"diskTags/":                        {under: (*Parameters).tag},
	SnapshotParameter:                  text(func(p *Parameters) *SnapshotID { return &p.SnapshotID }),
	"csi.storage.k8s.io/pvc/name":      text(func(p *Parameters) *string { return &p.ClaimName }),
	"csi.storage.k8s.io/pvc/namespace": text(func(p *Parameters) *string { return &p.ClaimNamespace }),
	"csi.storage.k8s.io/pv/name":       {}, // the PV is named after the disk

	"readOnly":                           idleTruth("mount the volume read-only in the Pod"),
	"omitfsck":                           idleTruth("a file system is always checked before it is mounted for writing"),
	"restrictToHpnZone":                  {set: (*Parameters).setHPN},
	"volumeExpandAutoSnapshot":           {idle: "it is obsolete"},
	"volume.kubernetes.io/selected-node": {idle: "the topology requirement says where the disk goes"},

	"volumeDeleteSnapshotRetentionDays": {barred: "no snapshot is taken of a disk that is deleted"},
	"alibabacloud.com/createdisk-arn":   {barred: "let the driver's own role create disks"},
	"volume.alibabacloud.com/disk-id":   {barred: "make a PersistentVolume by hand for a disk that exists"},
	"sysConfig":                         {barred: "set block device attributes on the node"},
	"dataCacheSize":                     {barred: "choose a faster disk type"},
	"dataCacheMode":                     {barred: "choose a faster disk type"},
	"readIOPS":                          {barred: otherLimit},
	"writeIOPS":                         {barred: otherLimit},
	"readBPS":                           {barred: otherLimit},
	"writeBPS":                          {barred: otherLimit},
}

// find returns the meaning of a name, if it has one; its set is bound to the
// name.
func (t keyTable[P]) find(name string) (key[P], bool) {
	if k, ok := t[name]; ok && k.under == nil {
		return k, true
	}
	prefix, rest, _ := strings.Cut(name, "/")
	k := t[prefix+"/"]
	if k.under == nil || rest == "" {
		return key[P]{}, false
	}
	k.set = func(p *P, value string) error { return k.under(p, rest, value) }
	return k, true
}

// String lists the names that do something.
func (t keyTable[P]) String() string {
	var names []string
	for _, name := range slices.Sorted(maps.Keys(t)) {
		if k := t[name]; k.barred == "" && k.idle == "" {
			if k.under != nil {
				name += "<key>"
			}
			names = append(names, name)
		}
	}
	return strings.Join(names, ", ")
}

// text keeps a value as it is. A second name for the same field may repeat the
// value, not change it.
func text[P any, S ~string](field func(*P) *S) key[P] {
	return key[P]{set: func(p *P, value string) error {
		f := field(p)
		if *f != "" && *f != S(value) {
			return fmt.Errorf("another name of the same parameter says %q", *f)
		}
		*f = S(value)
		return nil
	}}
}

// truth keeps a yes or no.
func truth[P any](field func(*P) *bool) key[P] {
	return key[P]{set: func(p *P, value string) (err error) {
		*field(p), err = boolean(value)
		return err
	}}
}

// idleTruth wants a yes or no, and does nothing with it.
func idleTruth(why string) key[Parameters] {
	return key[Parameters]{idle: why, set: func(_ *Parameters, value string) error {
		_, err := boolean(value)
		return err
	}}
}

func boolean(value string) (bool, error) {
	switch strings.ToLower(value) {
	case "true", "t", "yes", "1", "enabled":
		return true, nil
	case "false", "f", "no", "0", "disabled":
		return false, nil
	}
	return false, fmt.Errorf("allowed are true, yes, 1, enabled and false, no, 0, disabled")
}

// elements splits a list at its commas. Repeated elements count once.
func elements(value string) ([]string, error) {
	var all []string
	for e := range strings.SplitSeq(value, ",") {
		e = strings.TrimSpace(e)
		if e == "" {
			return nil, fmt.Errorf("an element of the list is empty; allowed is a list such as a,b")
		}
		if !slices.Contains(all, e) {
			all = append(all, e)
		}
	}
	return all, nil
}

func (p *Parameters) setCategories(value string) error {
	if value == "available" {
		p.categories = defaultCategories
		return nil
	}
	words, err := elements(value)
	if err != nil {
		return err
	}
	p.categories = nil
	for _, word := range words {
		c, err := category(word)
		if err != nil {
			return err
		}
		p.categories = append(p.categories, c)
	}
	return nil
}

// category reads one disk type that the driver makes.
func category(word string) (Category, error) {
	traits, known := Category(word).Traits()
	switch {
	case !known:
		return "", fmt.Errorf("%s is no disk type; allowed are %s", word, list(Categories()))
	case traits.Barred != "":
		return "", fmt.Errorf("%s is not for volumes, as %s; allowed are %s", word, traits.Barred, list(Categories()))
	}
	return Category(word), nil
}

func (p *Parameters) setLevels(value string) error {
	words, err := elements(value)
	if err != nil {
		return err
	}
	p.levels = nil
	for _, word := range words {
		level, err := level(word)
		if err != nil {
			return err
		}
		p.levels = append(p.levels, level)
	}
	return nil
}

// level reads one performance level.
func level(word string) (Level, error) {
	if _, known := categories[essd].Levels[Level(word)]; !known {
		return "", fmt.Errorf("%s is no performance level; allowed are PL0, PL1, PL2, PL3", word)
	}
	return Level(word), nil
}

// zoneForm is the form of a zone's ID: cn-hangzhou-h, ap-southeast-1a.
var zoneForm = regexp.MustCompile(`^[a-z0-9]+(-[a-z0-9]+)+$`)

func (p *Parameters) setZones(value string) error {
	words, err := elements(value)
	if err != nil {
		return err
	}
	var zones []Zone
	for _, word := range words {
		if !zoneForm.MatchString(word) {
			return fmt.Errorf("%q is no zone; allowed is a list such as cn-hangzhou-h,cn-hangzhou-i", word)
		}
		zones = append(zones, Zone(word))
	}
	if p.Zones != nil && !slices.Equal(p.Zones, zones) {
		return fmt.Errorf("another name of the same parameter says %q", list(p.Zones))
	}
	p.Zones = zones
	return nil
}

func (p *Parameters) setFilesystem(value string) error {
	if !slices.Contains(Filesystems(), value) {
		return fmt.Errorf("allowed are %s", strings.Join(Filesystems(), ", "))
	}
	return text(func(p *Parameters) *string { return &p.Filesystem }).set(p, value)
}

func (p *Parameters) setIOPS(value string) (err error) {
	p.ProvisionedIOPS, err = count(value)
	return err
}

// count reads a whole number from 0.
func count(value string) (int64, error) {
	n, err := strconv.ParseInt(value, 10, 64)
	if err != nil || n < 0 {
		return 0, fmt.Errorf("allowed is a whole number from 0")
	}
	return n, nil
}

func (p *Parameters) setHPN(value string) error {
	if value != "never" {
		return fmt.Errorf("allowed is never: volumes of Lingjun zones are not supported")
	}
	return nil
}

func (p *Parameters) setTags(value string) error {
	words, err := elements(value)
	if err != nil {
		return err
	}
	for _, word := range words {
		name, content, ok := strings.Cut(word, ":")
		if !ok {
			return fmt.Errorf("%q has no colon; allowed is a list such as team:web,stage:test", word)
		}
		if err := p.tag(name, content); err != nil {
			return err
		}
	}
	return nil
}

func (p *Parameters) tag(name, value string) error {
	if err := checkTag(name, value); err != nil {
		return err
	}
	p.Tags[name] = value
	return nil
}
