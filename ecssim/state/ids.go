package state

import (
	"crypto/sha256"
	"fmt"
	"strconv"
	"strings"
)

// idMaker makes IDs in the form of ECS's. The n-th ID of a kind is the same
// for the same seed.
type idMaker struct {
	code     string // of the region, as it opens a disk's ID
	seed     string
	made     map[string]int // by prefix
	requests int

	systemDisks int
}

// regionCodes open the IDs of a region's resources.
var regionCodes = map[string]string{
	"cn-hangzhou": "bp1", "cn-beijing": "2ze", "cn-shenzhen": "wz9", "cn-shanghai": "uf6",
}

func newIDMaker(region string, seed uint32) idMaker {
	code, ok := regionCodes[region]
	if !ok {
		sum := sha256.Sum256([]byte(region))
		code = fmt.Sprintf("%x", sum[:2])[:3]
	}
	return idMaker{code: code, seed: fmt.Sprintf("%07s", strconv.FormatUint(uint64(seed), 36)), made: map[string]int{}}
}

// The prefixes of IDs, which tell the kinds apart.
const (
	diskPrefix     = "d-"
	SnapshotPrefix = "s-"
	groupPrefix    = "ssg-"
	taskPrefix     = "t-"
)

// resource returns the ID of a new resource: its prefix and 20 letters and
// digits.
func (m *idMaker) resource(prefix string) string {
	m.made[prefix]++
	return fmt.Sprintf("%s%s%s%010s", prefix, m.code, m.seed, strconv.FormatInt(int64(m.made[prefix]), 36))
}

// systemDisk returns the ID of a new system disk. They are counted apart, so
// that the n-th data disk has the same ID however many instances there are.
func (m *idMaker) systemDisk() string {
	m.systemDisks++
	return fmt.Sprintf("%s%s%ss%09s", diskPrefix, m.code, m.seed, strconv.FormatInt(int64(m.systemDisks), 36))
}

// request returns a request's ID, an upper-case UUID.
func (m *idMaker) request() string {
	m.requests++
	sum := sha256.Sum256(fmt.Appendf(nil, "%s/%s/%d", m.code, m.seed, m.requests))
	sum[6] = sum[6]&0x0f | 0x40
	sum[8] = sum[8]&0x3f | 0x80
	return strings.ToUpper(fmt.Sprintf("%x-%x-%x-%x-%x", sum[:4], sum[4:6], sum[6:8], sum[8:10], sum[10:16]))
}
