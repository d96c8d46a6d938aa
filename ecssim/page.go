package ecssim

import (
	"encoding/base64"
	"slices"
	"strconv"
	"strings"
)

// paging is how an action cuts its result into pages.
type paging struct {
	defaultSize, maxSize   int // of PageSize
	fallback               int // MaxResults if it is absent; 0 is minResults
	minResults, maxResults int // what MaxResults is raised or cut to
}

// page is the page that a request asks for: by NextToken and MaxResults, or
// by PageNumber and PageSize, which the first two override.
type page struct {
	byToken bool
	after   int // the key of the last row before the page
	resumed bool
	number  int
	size    int
}

// readPage reads the paging parameters.
func readPage(p parameters, limits paging) (page, *refusal) {
	if p["NextToken"] != "" || p["MaxResults"] != "" {
		return readTokenPage(p, limits)
	}
	number, no := p.integer("PageNumber", 1)
	if no != nil {
		return page{}, no
	}
	size, no := p.integer("PageSize", limits.defaultSize)
	if no != nil {
		return page{}, no
	}
	if number < 1 {
		return page{}, refuse(400, "InvalidParameter", "The specified parameter PageNumber value %d is not valid: 1 or more.", number)
	}
	if size < 1 || size > limits.maxSize {
		return page{}, refuse(400, "InvalidParameter", "The specified parameter PageSize value %d is not valid: 1 to %d.", size, limits.maxSize)
	}
	return page{number: number, size: size}, nil
}

func readTokenPage(p parameters, limits paging) (page, *refusal) {
	size, no := p.integer("MaxResults", max(limits.fallback, limits.minResults))
	if no != nil {
		return page{}, no
	}
	pg := page{byToken: true, size: min(max(size, limits.minResults), limits.maxResults)}
	if token := p["NextToken"]; token != "" {
		raw, err := base64.RawURLEncoding.DecodeString(token)
		if err == nil {
			pg.after, err = strconv.Atoi(string(raw))
		}
		if err != nil {
			return page{}, refuse(400, "InvalidParameter", "The specified parameter NextToken value %q is not valid: it must come from the reply before.", token)
		}
		pg.resumed = true
	}
	return pg, nil
}

// cut returns the rows of a page and the reply's paging fields. The rows come
// in the order of their keys, which are all different.
func cut[T any](pg page, rows []T, key func(T) int) ([]T, object) {
	if !pg.byToken {
		from := len(rows)
		if pg.number-1 < len(rows) { // no page further on has a row, and the product stays in range
			from = min((pg.number-1)*pg.size, len(rows))
		}
		return rows[from:min(from+pg.size, len(rows))], object{"TotalCount": len(rows), "PageNumber": pg.number, "PageSize": pg.size}
	}
	if pg.resumed {
		from := slices.IndexFunc(rows, func(r T) bool { return key(r) > pg.after })
		if from < 0 {
			from = len(rows)
		}
		rows = rows[from:]
	}
	next := ""
	if len(rows) > pg.size {
		rows = rows[:pg.size]
		next = base64.RawURLEncoding.EncodeToString([]byte(strconv.Itoa(key(rows[len(rows)-1]))))
	}
	return rows, object{"NextToken": next}
}

// orDryRun returns a refusal, or if there is none the one that a dry run
// that found nothing wrong ends with.
func orDryRun(no *refusal) *refusal {
	if no != nil {
		return no
	}
	return refuse(400, "DryRunOperation", "Request validation has been passed with DryRun flag set.")
}

func joinLines(words []string) string { return strings.Join(words, "\n") }
