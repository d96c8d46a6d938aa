package actions

import (
	"bytes"
	"crypto/sha256"
	"slices"
	"time"

	"github.com/topodisk/topodisk/ecssim/wire"
)

// mismatchCode refuses a request under the token of another one.
const mismatchCode = "IdempotentParameterMismatch"

// tokens remembers what each ClientToken was used for, for a token's life. An
// entry holds hashes, not texts, and no pointer, for there are as many as
// there were requests in all that time.
type tokens struct {
	life time.Duration
	// ages are the entries by when they were made, the oldest first. An age is
	// dropped as a whole when the last of its entries has expired.
	ages []tokenAge
	// busy has until when the first request under a token has no reply.
	busy    map[tokenKey]time.Time
	refused map[tokenKey]*wire.Refusal // how a request under a token was refused
}

// agesOfLife is how many ages a token's life is divided into.
const agesOfLife = 8

// tokenAge is the tokens that were bound in one part of a token's life.
type tokenAge struct {
	began time.Time
	uses  map[tokenKey]tokenUse
}

// tokenKey is the hash of an action and a ClientToken.
type tokenKey [16]byte

// tokenUse is what a ClientToken was used for.
type tokenUse struct {
	canonical [8]byte  // of the hash of the request's parameters
	result    [24]byte // the ID of what was made, filled with zeros; all zeros if it was refused
	bound     int64    // when, in nanoseconds of Unix time
}

func newTokens(life time.Duration) tokens {
	return tokens{life: life, busy: map[tokenKey]time.Time{}, refused: map[tokenKey]*wire.Refusal{}}
}

// checkToken refuses a ClientToken that no request could use.
func checkToken(token string) *wire.Refusal {
	if len(token) > 64 {
		return wire.Refuse(400, "InvalidParameter", "The specified parameter ClientToken is not valid: at most 64 characters.")
	}
	for i := range len(token) {
		if token[i] < ' ' || token[i] > '~' {
			return wire.Refuse(400, "InvalidParameter", "The specified parameter ClientToken is not valid: ASCII characters only.")
		}
	}
	return nil
}

// underToken makes something under a request's ClientToken, or returns the ID of
// what that made before.
func underToken(req *Request, make func(*Request) (string, *wire.Refusal)) (string, *wire.Refusal) {
	if no := checkToken(req.Params["ClientToken"]); no != nil {
		return "", no
	}
	id, no := req.tokens.replay(req)
	if no != nil || id != "" {
		return id, no
	}
	id, no = make(req)
	req.tokens.bind(req, id, no, req.Rules.BindFailedTokens)
	return id, no
}

// replay returns what was made under the token of a request, if it was used
// before, whether or not that still exists, or how it was refused; or the
// refusal of a request that is not the same, or that came before the first one
// was answered.
func (t *tokens) replay(req *Request) (string, *wire.Refusal) {
	if req.Params["ClientToken"] == "" {
		return "", nil
	}
	t.expire(req.Now)
	key := req.tokenKey()
	use, found := t.find(key, req.Now)
	switch {
	case !found:
		return "", nil
	case use.canonical != req.canonicalHash():
		return "", wire.Refuse(400, mismatchCode, "The request uses the same client token as a previous, but non-identical request. Do not reuse a client token with different requests, unless the requests are identical.")
	case req.Now.Before(t.busy[key]):
		return "", wire.Refuse(403, "LastTokenProcessing", "The last token request is processing.")
	case t.refused[key] != nil:
		again := *t.refused[key]
		return "", &again
	}
	return string(bytes.TrimRight(use.result[:], "\x00")), nil
}

// has tells whether any age has a token.
func (t *tokens) has(key tokenKey) bool {
	return slices.ContainsFunc(t.ages, func(age tokenAge) bool { _, is := age.uses[key]; return is })
}

// find returns the last use of a token that has not expired.
func (t *tokens) find(key tokenKey, now time.Time) (tokenUse, bool) {
	for i := len(t.ages) - 1; i >= 0; i-- {
		if use, is := t.ages[i].uses[key]; is {
			return use, now.Sub(time.Unix(0, use.bound)) < t.life
		}
	}
	return tokenUse{}, false
}

// bind ties the token of a request to what was made, or to how it was refused
// if failedToo says so.
func (t *tokens) bind(req *Request, result string, refused *wire.Refusal, failedToo bool) {
	if req.Params["ClientToken"] == "" || refused != nil && (!failedToo || passing(refused)) {
		return
	}
	key := req.tokenKey()
	use := tokenUse{canonical: req.canonicalHash(), bound: req.Now.UnixNano()}
	if copy(use.result[:], result) < len(result) {
		panic("ecssim: an ID that is too long for a token's entry: " + result)
	}
	delete(t.refused, key)
	if refused != nil {
		t.refused[key] = refused
	}
	t.age(req.Now).uses[key] = use
	req.Token = &key
}

// age returns the age of this moment, beginning it if need be.
func (t *tokens) age(now time.Time) tokenAge {
	if n := len(t.ages); n == 0 || now.Sub(t.ages[n-1].began) >= t.life/agesOfLife {
		t.ages = append(t.ages, tokenAge{now, map[tokenKey]tokenUse{}})
	}
	return t.ages[len(t.ages)-1]
}

// expire drops the ages whose last entry has expired.
func (t *tokens) expire(now time.Time) {
	for len(t.ages) > 0 && now.Sub(t.ages[0].began) >= t.life+t.life/agesOfLife {
		gone := t.ages[0]
		t.ages = t.ages[1:]
		for key := range t.refused {
			if _, is := gone.uses[key]; is && !t.has(key) {
				delete(t.refused, key)
			}
		}
	}
}

// passing says whether a refusal speaks of a state that ends by itself, so that
// the same request may be tried later.
func passing(no *wire.Refusal) bool {
	switch no.Code {
	case "IncorrectDiskStatus", "IncorrectDiskStatus.Initializing", "IncorrectDiskStatus.CreatingSnapshot", "IncorrectDiskStatus.TooManyCreatingSnapshots",
		"InvalidSnapshotId.NotReady", "LastOrderProcessing", "InvalidStatus.Upgrading", "IncorrectInstanceStatus", "DiskCreatingSnapshot":
		return true
	}
	return no.Status >= 500
}

// SettleToken notes until when the token of the request is busy: until its reply.
func (req *Request) SettleToken(reply time.Time) {
	if req.Token == nil || !reply.After(req.At) {
		return
	}
	key := *req.Token
	req.tokens.busy[key] = reply
	req.Region.Schedule(reply, func() { delete(req.tokens.busy, key) })
}

func (req *Request) tokenKey() tokenKey {
	sum := sha256.Sum256([]byte(req.Action.Name + " " + req.Params["ClientToken"]))
	return tokenKey(sum[:16])
}

func (req *Request) canonicalHash() [8]byte {
	sum := sha256.Sum256([]byte(req.Params.Canonical("ClientToken")))
	return [8]byte(sum[:8])
}
