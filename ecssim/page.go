package ecssim

import (
	"encoding/base64"
	"fmt"
	"iter"
	"math"
	"sort"
	"strconv"
	"strings"
	"time"
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
	number  int
	size    int
	now     time.Time
	partial bool // only half of the rows are to come
}

// readPage reads the paging parameters.
func (s *Server) readPage(x *exchange, limits paging) (page, *refusal) {
	p := x.params
	if limits.maxResults > 0 && (p["NextToken"] != "" || p["MaxResults"] != "") {
		return s.readTokenPage(x, limits)
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
	return page{number: number, size: size, partial: x.fault.Do == FaultPartial}, nil
}

// readTokenPage reads the paging parameters of a request that pages by token.
func (s *Server) readTokenPage(x *exchange, limits paging) (page, *refusal) {
	size, no := x.params.integer("MaxResults", max(limits.fallback, limits.minResults))
	if no != nil {
		return page{}, no
	}
	pg := page{
		byToken: true, after: math.MinInt, size: min(max(size, limits.minResults), limits.maxResults), now: x.now, partial: x.fault.Do == FaultPartial,
	}
	token := x.params["NextToken"]
	if token == "" {
		return pg, nil
	}
	var issued time.Time
	if pg.after, issued, no = readNextToken(token); no != nil {
		return page{}, no
	}
	if life := s.config.PageTokenLife; life > 0 && x.now.Sub(issued) >= life {
		return page{}, refuse(400, "InvalidParameter", "The specified parameter NextToken value %q is not valid: it has expired.", token)
	}
	return pg, nil
}

// nextToken names the last row of a page, and when that was.
func nextToken(key int, now time.Time) string {
	return base64.RawURLEncoding.EncodeToString(fmt.Appendf(nil, "%d %d", key, now.UnixNano()))
}

func readNextToken(token string) (int, time.Time, *refusal) {
	invalid := refuse(400, "InvalidParameter", "The specified parameter NextToken value %q is not valid: it must come from the reply before.", token)
	raw, err := base64.RawURLEncoding.DecodeString(token)
	if err != nil {
		return 0, time.Time{}, invalid
	}
	key, nanos, _ := strings.Cut(string(raw), " ")
	after, err := strconv.Atoi(key)
	if err != nil {
		return 0, time.Time{}, invalid
	}
	issued, err := strconv.ParseInt(nanos, 10, 64)
	if err != nil {
		return 0, time.Time{}, invalid
	}
	return after, time.Unix(0, issued), nil
}

// cut returns the rows of a page and the reply's paging fields. The rows come
// in the order of their keys, which are all different.
func cut[T any](pg page, rows []T, key func(T) int) ([]T, object) {
	return cutAt(pg, len(rows), func(i int) T { return rows[i] }, key)
}

// cutAt is cut of n rows, of which it looks at those alone that it needs.
func cutAt[T any](pg page, n int, row func(int) T, key func(T) int) ([]T, object) {
	from := n
	switch {
	case pg.byToken:
		from = sort.Search(n, func(i int) bool { return key(row(i)) > pg.after })
	case pg.number-1 < n: // no page further on has a row, and the product stays in range
		from = min((pg.number-1)*pg.size, n)
	}
	var shown []T
	for i := range pg.kept(min(pg.size, n-from)) {
		shown = append(shown, row(from+i))
	}
	if !pg.byToken {
		return shown, object{"TotalCount": n, "PageNumber": pg.number, "PageSize": pg.size}
	}
	return shown, object{"NextToken": next(pg, shown, from+len(shown) < n, key)}
}

// cutSeq is cut for rows that are too many to hold: it keeps those of the page
// alone. A page by token ends as soon as it is full.
func cutSeq[T any](pg page, rows iter.Seq[T], key func(T) int) ([]T, object) {
	var shown []T
	if !pg.byToken {
		total := 0
		for r := range rows {
			if total/pg.size == pg.number-1 {
				shown = append(shown, r)
			}
			total++
		}
		return shown[:pg.kept(len(shown))], object{"TotalCount": total, "PageNumber": pg.number, "PageSize": pg.size}
	}
	more := false
	for r := range rows {
		if key(r) <= pg.after {
			continue
		}
		if more = len(shown) == pg.size; more {
			break
		}
		shown = append(shown, r)
	}
	kept := shown[:pg.kept(len(shown))]
	return kept, object{"NextToken": next(pg, kept, more || len(kept) < len(shown), key)}
}

// next returns the NextToken after the rows of a page, empty if that was all.
func next[T any](pg page, shown []T, more bool, key func(T) int) string {
	switch {
	case !more:
		return ""
	case len(shown) == 0:
		return nextToken(pg.after, pg.now)
	}
	return nextToken(key(shown[len(shown)-1]), pg.now)
}

// kept is how many of n rows come.
func (pg page) kept(n int) int {
	if pg.partial {
		return n / 2
	}
	return n
}

// orDryRun returns a refusal, or if there is none the one that a dry run
// that found nothing wrong ends with.
func orDryRun(no *refusal) *refusal {
	if no != nil {
		return no
	}
	return refuse(400, "DryRunOperation", "Request validation has been passed with DryRun flag set.")
}
