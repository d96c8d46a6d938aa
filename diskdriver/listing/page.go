// Package listing serves lists in pages (CSI spec, max_entries and
// starting_token): sorted by ID, with tokens that name the last one listed.
package listing

import (
	"cmp"
	"regexp"
	"slices"
	"strings"

	"github.com/topodisk/topodisk/diskdriver/disk"
)

const (
	// LongestPage is the most entries of one answer: gRPC clients refuse a
	// message of more than 4 MiB, and an entry takes less than 1 KiB.
	LongestPage = 2000

	// tokenPrefix begins the token of a list; the ID of the last one that was
	// listed follows.
	tokenPrefix = "after:"
)

// Start checks what a list is asked for, and returns the ID of the last one
// that was listed; empty at the beginning. Invalid or BadToken: the request.
func Start(most int32, token string) (string, error) {
	if err := CheckMost(most); err != nil {
		return "", err
	}
	last, continued := strings.CutPrefix(token, tokenPrefix)
	if token != "" && (!continued || !idForm.MatchString(last)) {
		return "", BadToken(token)
	}
	return last, nil
}

// idForm is the form of what ECS gives out as IDs.
var idForm = regexp.MustCompile(`^[0-9A-Za-z][0-9A-Za-z_.-]{0,127}$`)

// CheckMost refuses a limit of a page that can't be: Invalid.
func CheckMost(most int32) error {
	if most < 0 {
		return disk.Errorf(disk.Invalid, "max_entries: %d is not allowed; allowed are 0, which is no limit, and more", most)
	}
	return nil
}

// BadToken is the error for a token that no list of this driver ends with.
func BadToken(token string) error {
	return disk.Errorf(disk.BadToken, "starting_token: %q is none of this driver's; begin again without one", token)
}

// Page returns the items after the last one listed, at most so many if that is
// not 0, and the token of the next page, empty if there are no more. They are sorted by ID.
func Page[T any, ID ~string](items []T, last ID, most int, idOf func(T) ID) (page []T, next string) {
	from, found := slices.BinarySearchFunc(items, last, func(item T, id ID) int { return cmp.Compare(idOf(item), id) })
	if found {
		from++
	}
	rest := items[from:]
	if most == 0 || most > LongestPage {
		most = LongestPage
	}
	if len(rest) <= most {
		return rest, ""
	}
	return rest[:most], tokenPrefix + string(idOf(rest[most-1]))
}
