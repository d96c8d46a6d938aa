package plan

import (
	"cmp"
	"errors"
	"fmt"
	"regexp"
	"slices"
	"strings"
	"time"

	corev1 "k8s.io/api/core/v1"
	storagev1 "k8s.io/api/storage/v1"

	"github.com/topodisk/topodisk/diskdriver/disk"
	"github.com/topodisk/topodisk/diskdriver/params"
	"github.com/topodisk/topodisk/explain"
	"github.com/topodisk/topodisk/provisioner/request"
	"github.com/topodisk/topodisk/topology"
)

// findRefused adds the classes and volumes that topodisk would refuse or take otherwise than another driver of the name, and returns how
// many there are in all, and how many of them it would refuse.
func findRefused(f *Facts, p *Plan) (read, refused int) {
	say := func(kind, name string, err error, notes []string) {
		read++
		object := explain.Ref{Kind: kind, Name: name}
		if err != nil {
			refused++
			p.find(Refused, object, "%v", err)
		}
		for _, note := range notes {
			p.find(Note, object, "%s", note)
		}
	}
	for i := range f.Classes {
		if class := &f.Classes[i]; class.Provisioner == f.Driver {
			warnings, err := refusedClass(class)
			say("StorageClass", class.Name, err, warnings)
		}
	}
	for i := range f.Attributes {
		if class := &f.Attributes[i]; class.DriverName == f.Driver {
			_, err := params.ParseChange(class.Parameters)
			say("VolumeAttributesClass", class.Name, err, nil)
		}
	}
	for i := range f.SnapshotClasses {
		if class := &f.SnapshotClasses[i]; class.Driver == f.Driver {
			warnings, err := refusedSnapshotClass(class)
			say(class.Kind, class.Name, err, warnings)
		}
	}
	without := withoutSerial(f)
	for i := range f.Volumes {
		if volume := &f.Volumes[i]; volume.Spec.CSI != nil && volume.Spec.CSI.Driver == f.Driver {
			err := refusedVolume(volume)
			if attachment := without[volume.Name]; err == nil && attachment != "" {
				err = fmt.Errorf("its disk seems to have no serial number: VolumeAttachment %s is attached, and its status.attachmentMetadata has no %s; "+
					"topodisk can't attach such a disk, so make a new one from a snapshot of it", attachment, disk.SerialKey)
			}
			say("PersistentVolume", volume.Name, err, notesOn(volume))
		}
	}
	return read, refused
}

// withoutProvisioners leaves out what provisioners take for themselves: names of Secrets, and topodisk's own parameters.
func withoutProvisioners(parameters map[string]string) map[string]string {
	rest := map[string]string{}
	for key, value := range parameters {
		if !strings.HasPrefix(key, "topodisk.io/") && !namesSecret(key) {
			rest[key] = value
		}
	}
	return rest
}

// namesSecret says whether a parameter names a Secret for one of Kubernetes' sidecars.
func namesSecret(key string) bool {
	ends := []string{"-secret-name", "-secret-namespace", "/secret-name", "/secret-namespace"}
	return strings.HasPrefix(key, "csi.storage.k8s.io/") && slices.ContainsFunc(ends, func(end string) bool { return strings.HasSuffix(key, end) })
}

// refusedClass returns why no volume could be made of a StorageClass; nil if one could. What the operator of topodisk allows beyond the
// lists of options isn't known here.
func refusedClass(class *storagev1.StorageClass) (warnings []string, err error) {
	parsed, err := params.Parse(withoutProvisioners(class.Parameters), nil, params.Refuse)
	if err != nil {
		return parsed.Warnings, err
	}
	if _, err := parsed.MkfsOptionsFor(parsed.Filesystem, disk.AllowedOptions{}); err != nil {
		return parsed.Warnings, err
	}
	for i, option := range class.MountOptions {
		if err := disk.CheckMountOption(parsed.Filesystem, option, disk.AllowedOptions{}); err != nil {
			return parsed.Warnings, fmt.Errorf("mountOptions[%d]: %w", i, err)
		}
	}
	return parsed.Warnings, request.CheckSecrets(class)
}

func refusedSnapshotClass(class *SnapshotClass) (warnings []string, err error) {
	if class.Malformed != "" {
		return nil, errors.New(class.Malformed)
	}
	parse := params.ParseSnapshotClass
	if class.Kind == "VolumeGroupSnapshotClass" {
		parse = params.ParseGroupClass
	}
	parsed, err := parse(withoutProvisioners(class.Parameters), params.Refuse)
	return parsed.Warnings, err
}

var diskForm = regexp.MustCompile(`^d-[0-9a-z]+$`)

// refusedVolume returns why a volume couldn't be used; nil if nothing is known to speak against it. What a volume's attributes say beyond
// what the driver knows is passed over, so nothing in them is refused; and so are mount options that new volumes may not have, unless
// no volume may have them.
func refusedVolume(volume *corev1.PersistentVolume) error {
	source := volume.Spec.CSI
	if !diskForm.MatchString(source.VolumeHandle) {
		return fmt.Errorf("spec.csi.volumeHandle %q is no disk ID; allowed is d- and letters and digits", source.VolumeHandle)
	}
	mounted := volume.Spec.VolumeMode == nil || *volume.Spec.VolumeMode == corev1.PersistentVolumeFilesystem
	if mounted && source.FSType != "" && !slices.Contains(disk.Filesystems(), source.FSType) {
		return fmt.Errorf("spec.csi.fsType %q is not allowed: allowed are %s", source.FSType, strings.Join(disk.Filesystems(), ", "))
	}
	if mounted && slices.Contains(volume.Spec.AccessModes, corev1.ReadWriteMany) {
		return errors.New("spec.accessModes has ReadWriteMany for a file system, which two nodes that write would destroy; " +
			"allowed are ReadWriteOnce, ReadWriteOncePod and ReadOnlyMany")
	}
	for i, option := range volume.Spec.MountOptions {
		if err := disk.BarMountOption(option, disk.AllowedOptions{}); mounted && err != nil {
			return fmt.Errorf("spec.mountOptions[%d]: %w", i, err)
		}
	}
	return nil
}

// withoutSerial returns, by the names of PersistentVolumes, the VolumeAttachments that say that their disk has no serial number: an
// attachment tells the number of every disk that has one.
func withoutSerial(f *Facts) map[string]string {
	attachments := map[string]string{}
	for i := range f.Attachments {
		a := &f.Attachments[i]
		volume := a.Spec.Source.PersistentVolumeName
		if a.Spec.Attacher == f.Driver && a.Status.Attached && volume != nil && a.Status.AttachmentMetadata[disk.SerialKey] == "" {
			attachments[*volume] = a.Name
		}
	}
	return attachments
}

// serials is since when ECS gives every new disk a serial number.
var serials = time.Date(2020, time.June, 10, 0, 0, 0, 0, time.UTC)

// notesOn says what of a volume stays as it is and may surprise.
func notesOn(volume *corev1.PersistentVolume) []string {
	var notes []string
	if made := volume.CreationTimestamp; !made.IsZero() && made.Time.Before(serials) {
		notes = append(notes, "older than June 2020: a disk of that time may have no serial number, and then topodisk can't attach it; "+
			"`aliyun ecs DescribeDisks` shows SerialNumber")
	}
	if by := volume.Annotations["pv.kubernetes.io/provisioned-by"]; by != volume.Spec.CSI.Driver {
		notes = append(notes, "made by hand: its disk may lack the tag of the cluster, which the RAM policy asks for")
	}
	options := volume.Spec.CSI.VolumeAttributes[disk.MkfsOptionsKey]
	if _, _, err := disk.ReadMkfsOptions(cmp.Or(volume.Spec.CSI.FSType, "ext4"), options, disk.AllowedOptions{}); err != nil {
		notes = append(notes, fmt.Sprintf("spec.csi.volumeAttributes[%s]: %v; an empty disk isn't formatted with it, a disk with a file system is mounted",
			disk.MkfsOptionsKey, err))
	}
	terms := affinityTerms(volume)
	if len(terms) == 0 {
		return append(notes, "no node affinity: Pods may come to a node of another zone, where the disk can't be attached")
	}
	known := []string{topology.ZoneKey, topology.WellKnownZoneKey, topology.RegionKey}
	for _, term := range terms {
		for _, rule := range term.MatchExpressions {
			switch {
			case rule.Key == topology.ZoneKey:
				notes = append(notes, "node affinity by "+topology.ZoneKey+
					": nodes keep that label; autoscalers that don't know it make no node for the volume")
			case !slices.Contains(known, rule.Key) && !strings.HasPrefix(rule.Key, disk.NodeTypeLabel):
				notes = append(notes, fmt.Sprintf("node affinity by %s, which no part of topodisk keeps on nodes", rule.Key))
			}
		}
	}
	return notes
}
