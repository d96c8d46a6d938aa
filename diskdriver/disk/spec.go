package disk

import (
	"fmt"
	"strings"
)

// Category is an ECS disk category, such as cloud_essd.
type Category string

// Level is the performance level of a cloud_essd disk, PL0 to PL3; empty
// leaves it to ECS (PL1) and is all that other categories take.
type Level string

// Token is an ECS ClientToken: the same token with the same parameters makes
// no second disk. At most 64 ASCII characters.
type Token string

// Spec is a disk as asked for: what is the same for every attempt to make it.
type Spec struct {
	Name             string // CSI volume name, unique in the cluster
	Encrypted        bool
	KMSKeyID         string
	MultiAttach      bool
	ProvisionedIOPS  int64 // sent for categories that take it
	Bursting         bool  // sent for categories that take it
	ResourceGroupID  string
	StorageClusterID string
	SnapshotID       string
	CloneOf          ID   // the disk that this one is to be a copy of, through SnapshotID
	Tags             Tags // every tag of the disk, the driver's own included
}

// Attempt is one try at a Spec: where, of which category and how large.
type Attempt struct {
	Zone     Zone // empty for a regional category
	Category Category
	Level    Level
	Size     GiB
}

// Origin returns what a disk of the Spec is made from.
func (s Spec) Origin() Origin {
	switch {
	case s.CloneOf != "":
		return OriginVolume
	case s.SnapshotID != "":
		return OriginSnapshot
	}
	return OriginEmpty
}

// Settings returns what the Spec asks of a disk's type, in words.
func (s Spec) Settings() string {
	var words []string
	if s.ProvisionedIOPS > 0 {
		words = append(words, fmt.Sprintf("provisionedIops %d", s.ProvisionedIOPS))
	}
	if s.Bursting {
		words = append(words, "burstingEnabled true")
	}
	if s.MultiAttach {
		words = append(words, "multiAttach true")
	}
	if len(words) == 0 {
		return "the size"
	}
	return "the size and " + strings.Join(words, ", ")
}
