package wire

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

// Paging is how an action cuts its result into pages.
type Paging struct {
	DefaultSize, MaxSize   int // of PageSize
	Fallback               int // MaxResults if it is absent; 0 is MinResults
	MinResults, MaxResults int // what MaxResults is raised or cut to
}

// Page is the page that a request asks for: by NextToken and MaxResults, or
// by PageNumber and PageSize, which the first two override.
type Page struct {
	byToken bool
	after   int // the key of the last row before the page
	number  int
	size    int
	now     time.Time
	Half    bool // only half of the rows are to come
}

// Page reads the paging parameters. A NextToken is taken for life, zero for ever.
func (p Parameters) Page(limits Paging, life time.Duration, now time.Time) (Page, *Refusal) {
	if limits.MaxResults > 0 && (p["NextToken"] != "" || p["MaxResults"] != "") {
		return p.TokenPage(limits, life, now)
	}
	number, no := p.Integer("PageNumber", 1)
	if no != nil {
		return Page{}, no
	}
	size, no := p.Integer("PageSize", limits.DefaultSize)
	if no != nil {
		return Page{}, no
	}
	if number < 1 {
		return Page{}, Refuse(400, "InvalidParameter", "The specified parameter PageNumber value %d is not valid: 1 or more.", number)
	}
	if size < 1 || size > limits.MaxSize {
		return Page{}, Refuse(400, "InvalidParameter", "The specified parameter PageSize value %d is not valid: 1 to %d.", size, limits.MaxSize)
	}
	return Page{number: number, size: size}, nil
}

// TokenPage reads the paging parameters of a request that pages by token.
func (p Parameters) TokenPage(limits Paging, life time.Duration, now time.Time) (Page, *Refusal) {
	size, no := p.Integer("MaxResults", max(limits.Fallback, limits.MinResults))
	if no != nil {
		return Page{}, no
	}
	pg := Page{byToken: true, after: math.MinInt, size: min(max(size, limits.MinResults), limits.MaxResults), now: now}
	token := p["NextToken"]
	if token == "" {
		return pg, nil
	}
	var issued time.Time
	if pg.after, issued, no = readNextToken(token); no != nil {
		return Page{}, no
	}
	if life > 0 && now.Sub(issued) >= life {
		return Page{}, Refuse(400, "InvalidParameter", "The specified parameter NextToken value %q is not valid: it has expired.", token)
	}
	return pg, nil
}

// nextToken names the last row of a page, and when that was.
func nextToken(key int, now time.Time) string {
	return base64.RawURLEncoding.EncodeToString(fmt.Appendf(nil, "%d %d", key, now.UnixNano()))
}

func readNextToken(token string) (int, time.Time, *Refusal) {
	invalid := Refuse(400, "InvalidParameter", "The specified parameter NextToken value %q is not valid: it must come from the reply before.", token)
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

// Cut returns the rows of a page and the reply's paging fields. The rows come
// in the order of their keys, which are all different.
func Cut[T any](pg Page, rows []T, key func(T) int) ([]T, Object) {
	return CutAt(pg, len(rows), func(i int) T { return rows[i] }, key)
}

// CutAt is Cut of n rows, of which it looks at those alone that it needs.
func CutAt[T any](pg Page, n int, row func(int) T, key func(T) int) ([]T, Object) {
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
		return shown, Object{"TotalCount": n, "PageNumber": pg.number, "PageSize": pg.size}
	}
	return shown, Object{"NextToken": next(pg, shown, from+len(shown) < n, key)}
}

// CutSeq is Cut for rows that are too many to hold: it keeps those of the page
// alone. A page by token ends as soon as it is full.
func CutSeq[T any](pg Page, rows iter.Seq[T], key func(T) int) ([]T, Object) {
	var shown []T
	if !pg.byToken {
		total := 0
		for r := range rows {
			if total/pg.size == pg.number-1 {
				shown = append(shown, r)
			}
			total++
		}
		return shown[:pg.kept(len(shown))], Object{"TotalCount": total, "PageNumber": pg.number, "PageSize": pg.size}
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
	return kept, Object{"NextToken": next(pg, kept, more || len(kept) < len(shown), key)}
}

// next returns the NextToken after the rows of a page, empty if that was all.
func next[T any](pg Page, shown []T, more bool, key func(T) int) string {
	switch {
	case !more:
		return ""
	case len(shown) == 0:
		return nextToken(pg.after, pg.now)
	}
	return nextToken(key(shown[len(shown)-1]), pg.now)
}

// kept is how many of n rows come.
func (pg Page) kept(n int) int {
	if pg.Half {
		return n / 2
	}
	return n
}
