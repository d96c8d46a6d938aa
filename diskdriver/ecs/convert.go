package ecs

import (
	"cmp"
	"encoding/json"
	"errors"
	"fmt"
	"maps"
	"slices"
	"strconv"
	"time"

	"github.com/aliyun/alibaba-cloud-sdk-go/sdk/requests"
	sdkecs "github.com/aliyun/alibaba-cloud-sdk-go/services/ecs"

	"github.com/topodisk/topodisk/diskdriver/disk"
)

// setTags puts tags into a request, whatever type the SDK has for them there, in the order of their keys: ECS
// compares the parameters of calls with the same token literally.
func setTags(r requests.AcsRequest, tags disk.Tags) {
	params := r.GetQueryParams()
	for i, key := range slices.Sorted(maps.Keys(tags)) {
		tag := fmt.Sprintf("Tag.%d.", i+1)
		params[tag+"Key"] = key
		if value := tags[key]; value != "" { // as the SDK has it
			params[tag+"Value"] = value
		}
	}
}

// tagsFromECS reads tags, which ECS shows under either pair of names.
func tagsFromECS(all []sdkecs.Tag) disk.Tags {
	tags := make(disk.Tags, len(all))
	for _, t := range all {
		tags[cmp.Or(t.TagKey, t.Key)] = cmp.Or(t.TagValue, t.Value)
	}
	return tags
}

// timeFromECS reads a time of ECS, with seconds or without; what is none is the
// zero time.
func timeFromECS(text string) time.Time {
	for _, form := range []string{time.RFC3339, "2006-01-02T15:04Z"} {
		if t, err := time.Parse(form, text); err == nil {
			return t
		}
	}
	return time.Time{}
}

func integer(n int64) requests.Integer { return requests.Integer(strconv.FormatInt(n, 10)) }

// trueOrUnset leaves a parameter out of a request unless it is true.
func trueOrUnset(on bool) requests.Boolean {
	if on {
		return requests.NewBoolean(true)
	}
	return ""
}

// list returns IDs as the requests have them that have a parameter for each.
func list[T ~string](ids ...T) *[]string {
	all := make([]string, len(ids))
	for i, id := range ids {
		all[i] = string(id)
	}
	return &all
}

// byKey returns things by what tells them apart.
func byKey[K comparable, V any](all []V, key func(V) K) map[K]V {
	found := make(map[K]V, len(all))
	for _, v := range all {
		found[key(v)] = v
	}
	return found
}

var errCircle = errors.New("the pages of the answer go round in a circle")

// jsonList returns IDs as the requests have them whose list is one parameter.
func jsonList[T ~string](ids []T) string {
	list, _ := json.Marshal(ids) // strings always marshal
	return string(list)
}

// mostStarts is how often a list is begun whose pages end with a token that has expired.
const mostStarts = 3

// everyPage reads the pages of a list, each by the token of the one before, and begins again where ECS doesn't take a token
// any more. BadToken: it has expired each time.
func everyPage[T any](action string, read func(token string) (page []T, next string, err error)) ([]T, error) {
	var all []T
	var err error
	for range mostStarts {
		if all, err = onceEveryPage(action, read); disk.KindOf(err) != disk.BadToken {
			return all, err
		}
	}
	return nil, err
}

// badToken is the error for a page that ECS refuses for its token: the rest of the request is that of the page before.
func badToken(action, token string, err error) error {
	if token == "" || disk.KindOf(err) != disk.Invalid {
		return err
	}
	return &disk.Error{Op: action, Kind: disk.BadToken, Err: fmt.Errorf("the place in the list is lost; begin again: %w", err)}
}

func onceEveryPage[T any](action string, read func(token string) (page []T, next string, err error)) ([]T, error) {
	var all []T
	seen := map[string]bool{"": true}
	for token := ""; ; {
		page, next, err := read(token)
		if err != nil {
			return nil, badToken(action, token, err)
		}
		all = append(all, page...)
		if token = next; token == "" {
			return all, nil
		}
		if seen[token] {
			return nil, &disk.Error{Op: action, Kind: disk.Unexpected, Err: errCircle}
		}
		seen[token] = true
	}
}
