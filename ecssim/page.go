package ecssim

import (
	"encoding/base64"
	"fmt"
	"math"
	"slices"
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
	if p["NextToken"] != "" || p["MaxResults"] != "" {
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
	if !pg.byToken {
		from := len(rows)
		if pg.number-1 < len(rows) { // no page further on has a row, and the product stays in range
			from = min((pg.number-1)*pg.size, len(rows))
		}
		shown := rows[from:min(from+pg.size, len(rows))]
		return shown[:pg.kept(len(shown))], object{"TotalCount": len(rows), "PageNumber": pg.number, "PageSize": pg.size}
	}
	from := slices.IndexFunc(rows, func(r T) bool { return key(r) > pg.after })
	if from < 0 {
		from = len(rows)
	}
	shown := rows[from:min(from+pg.size, len(rows))]
	shown = shown[:pg.kept(len(shown))]
	next, last := "", pg.after
	if len(shown) > 0 {
		last = key(shown[len(shown)-1])
	}
	if from+len(shown) < len(rows) {
		next = nextToken(last, pg.now)
	}
	return shown, object{"NextToken": next}
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

func joinLines(words []string) string { return strings.Join(words, "\n") }
