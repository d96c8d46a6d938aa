package ecssim

import "time"

// mismatchCode refuses a request under the token of another one.
const mismatchCode = "IdempotentParameterMismatch"

// tokens remembers what each ClientToken was used for.
type tokens struct {
	life time.Duration
	uses map[string]*tokenUse // by action and token
}

// tokenUse is a ClientToken bound to a request.
type tokenUse struct {
	canonical string   // the request's parameters
	result    string   // the ID of what was made; empty if it was refused
	refused   *refusal // nil if it wasn't
	bound     time.Time
	busyUntil time.Time // until then the first request has no reply
}

func newTokens(life time.Duration) tokens {
	return tokens{life: life, uses: map[string]*tokenUse{}}
}

// checkToken refuses a ClientToken that no request could use.
func checkToken(token string) *refusal {
	if len(token) > 64 {
		return refuse(400, "InvalidParameter", "The specified parameter ClientToken is not valid: at most 64 characters.")
	}
	for i := range len(token) {
		if token[i] < ' ' || token[i] > '~' {
			return refuse(400, "InvalidParameter", "The specified parameter ClientToken is not valid: ASCII characters only.")
		}
	}
	return nil
}

// replay returns what was made under the token of a request, if it was used
// before, whether or not that still exists, or how it was refused; or the
// refusal of a request that is not the same, or that came before the first one
// was answered.
func (t *tokens) replay(x *exchange) (string, *refusal) {
	use := t.uses[x.tokenKey()]
	if x.params["ClientToken"] == "" || use == nil {
		return "", nil
	}
	if x.now.Sub(use.bound) >= t.life {
		delete(t.uses, x.tokenKey())
		return "", nil
	}
	if use.canonical != x.canonical("ClientToken") {
		return "", refuse(400, mismatchCode, "The request uses the same client token as a previous, but non-identical request. Do not reuse a client token with different requests, unless the requests are identical.")
	}
	if x.now.Before(use.busyUntil) {
		return "", refuse(403, "LastTokenProcessing", "The last token request is processing.")
	}
	if use.refused != nil {
		again := *use.refused
		return "", &again
	}
	return use.result, nil
}

// bind ties the token of a request to what was made, or to how it was refused
// if failedToo says so.
func (t *tokens) bind(x *exchange, result string, refused *refusal, failedToo bool) {
	if x.params["ClientToken"] == "" || refused != nil && (!failedToo || refused.passes()) {
		return
	}
	x.token = &tokenUse{canonical: x.canonical("ClientToken"), result: result, refused: refused, bound: x.now}
	t.uses[x.tokenKey()] = x.token
}

// passes says whether a refusal speaks of a state that ends by itself, so that
// the same request may be tried later.
func (no *refusal) passes() bool {
	switch no.code {
	case "IncorrectDiskStatus", "IncorrectDiskStatus.Initializing", "IncorrectDiskStatus.CreatingSnapshot", "IncorrectDiskStatus.TooManyCreatingSnapshots",
		"InvalidSnapshotId.NotReady", "LastOrderProcessing", "InvalidStatus.Upgrading", "IncorrectInstanceStatus", "DiskCreatingSnapshot":
		return true
	}
	return no.status >= 500
}

// settle notes until when the token of a request is busy.
func (t *tokens) settle(x *exchange) {
	if x.token != nil {
		x.token.busyUntil = x.answerAt
	}
}

func (x *exchange) tokenKey() string { return x.action.name + " " + x.params["ClientToken"] }
