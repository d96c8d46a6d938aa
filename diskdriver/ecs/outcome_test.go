package ecs

import (
	"context"
	"errors"
	"fmt"
	"io"
	"net"
	"net/http"
	"net/url"
	"slices"
	"strings"
	"testing"
	"testing/synctest"
	"time"

	"github.com/topodisk/topodisk/diskdriver/disk"
	"github.com/topodisk/topodisk/diskdriver/ecs/signature"
	"github.com/topodisk/topodisk/ecssim"
)

// operations are all that a Client can do, each with the action that it makes
// first and whether that has effects.
type cloudCall struct {
	name, action string
	mutates      bool
	do           func(context.Context, *Client) error
}

var operations = []cloudCall{
	{"Create", "CreateDisk", true, func(ctx context.Context, c *Client) error { _, err := create(ctx, c, "vol-1"); return err }},
	{"Delete", "DeleteDisk", true, func(ctx context.Context, c *Client) error { return c.Delete(ctx, "d-bp1aaaaaaaaaaaaaaaaa") }},
	{"Get", "DescribeDisks", false, func(ctx context.Context, c *Client) error { _, err := c.Get(ctx, "d-bp1aaaaaaaaaaaaaaaaa"); return err }},
	{"Get alone", "DescribeDisks", false, func(ctx context.Context, c *Client) error { _, err := c.Get(ctx, "1-2345"); return err }},
	{"Named", "DescribeDisks", false, func(ctx context.Context, c *Client) error { _, err := c.Named(ctx, "vol-1", false); return err }},
	{"Check", "DescribeDisks", false, func(ctx context.Context, c *Client) error { return c.Check(ctx) }},
}

// quiet are the faults under which a call is answered as usual.
var quiet = []string{ecssim.FaultDelay, ecssim.FaultStuck, ecssim.FaultFails, ecssim.FaultStops, ecssim.FaultVanishes,
	ecssim.FaultTrickle, ecssim.FaultStale, ecssim.FaultNothing, ecssim.FaultPartial, ecssim.FaultDuplicate, ecssim.FaultEcho,
	ecssim.FaultHidden, ecssim.FaultDate}

func TestAnUnknownOutcomeIsNeverAFailure(t *testing.T) {
	for _, fault := range ecssim.FaultKinds {
		for _, op := range operations {
			if fault == ecssim.FaultStale && op.mutates {
				continue // there is no such thing
			}
			t.Run(fault+"/"+op.name, func(t *testing.T) {
				synctest.Test(t, func(t *testing.T) {
					sim, c := simulate(t, nil)
					if _, err := create(t.Context(), c, "bystander"); err != nil {
						t.Fatal(err)
					}
					before := calls(sim, op.action)
					if err := sim.AddFault(ecssim.Fault{Action: op.action, Do: fault, DelayAfter: time.Millisecond}); err != nil {
						t.Fatal(err)
					}
					ctx, cancel := context.WithTimeout(t.Context(), time.Minute)
					defer cancel()
					err := op.do(ctx, c)
					wantNoSecret(t, err)
					n := calls(sim, op.action) - before
					switch {
					case slices.Contains(quiet, fault), fault == ecssim.FaultIgnored && op.action != "CreateDisk":
						if kind := disk.KindOf(err); kind != disk.NotFound && kind != disk.Denied && err != nil { // denied: no disk at all is shown
							t.Errorf("an answer as usual is an error: %v", err)
						}
						return
					case fault == ecssim.FaultThrottle:
						wantKind(t, err, disk.Throttled)
						return
					case op.mutates && fault != ecssim.FaultRefused: // which proves that nothing was sent
						wantKind(t, err, disk.UnknownOutcome)
					default:
						wantKind(t, err, disk.Unreachable)
					}
					if n != 1 {
						t.Errorf("%d calls were made, want 1: retries are not made here", n)
					}
					lost := slices.Contains([]string{ecssim.FaultLostReply, ecssim.FaultLostRequest, ecssim.FaultRefused, ecssim.FaultReset, ecssim.FaultLate}, fault)
					if e := wantKind(t, err, disk.KindOf(err)); e.RequestID == "" && !lost {
						t.Errorf("the request ID of the answer is lost in %v", err)
					}
				})
			})
		}
	}
}

func TestTheSameTokenEndsAnUnknownOutcome(t *testing.T) {
	for _, fault := range []string{ecssim.FaultLostReply, ecssim.FaultTruncated, ecssim.FaultEmpty, ecssim.FaultHTML, ecssim.FaultErrorAfter, ecssim.FaultLostRequest} {
		synctest.Test(t, func(t *testing.T) {
			sim, c := simulate(t, nil)
			if err := sim.AddFault(ecssim.Fault{Action: "CreateDisk", Do: fault, Count: 1}); err != nil {
				t.Fatal(err)
			}
			_, err := create(t.Context(), c, "vol-1")
			wantKind(t, err, disk.UnknownOutcome)
			made, err := create(t.Context(), c, "vol-1")
			if err != nil {
				t.Fatalf("%s: %v", fault, err)
			}
			if all := sim.Disks(); len(all) != 1 || all[0].ID != string(made.ID) {
				t.Errorf("%s: ECS has %v, Create says %s", fault, all, made.ID)
			}
		})
	}
}

func TestAFailedReadForgetsNoDisk(t *testing.T) {
	for _, f := range []ecssim.Fault{
		{Do: ecssim.FaultError, Status: 403, Code: "Forbidden.RAM"},
		{Do: ecssim.FaultError, Status: 400, Code: "InvalidParameter"},
		{Do: ecssim.FaultError, Status: 404, Code: "InvalidAccessKeyId.NotFound"},
		{Do: ecssim.FaultThrottle},
		{Do: ecssim.FaultLostReply},
		{Do: ecssim.FaultEmpty},
	} {
		synctest.Test(t, func(t *testing.T) {
			sim, c := simulate(t, nil)
			f.Action = "DescribeDisks"
			if err := sim.AddFault(f); err != nil {
				t.Fatal(err)
			}
			ctx, cancel := context.WithTimeout(t.Context(), 10*time.Second)
			defer cancel()
			_, err := create(ctx, c, "vol-1")
			e := wantKind(t, err, disk.UnknownOutcome)
			if all := sim.Disks(); len(all) != 1 || string(e.Disk) != all[0].ID || e.RequestID == "" {
				t.Errorf("after %s %s: error %+v, ECS has %v", f.Do, f.Code, e, all)
			}
		})
	}
}

// quoted is what ECS may quote of a request: its URL and its headers.
func quoted(r *http.Request) string { return fmt.Sprintf("%s %v", r.URL, r.Header) }

// oddAnswers are answers that no ECS should give, made from the request.
var oddAnswers = map[string]func(*http.Request) (*http.Response, error){
	"an error that quotes the request": func(r *http.Request) (*http.Response, error) {
		return nil, fmt.Errorf("can't reach %s, %s", quoted(r), url.QueryEscape(quoted(r)))
	},
	"a refusal that quotes the request": func(r *http.Request) (*http.Response, error) {
		return answerWith(r, 400, fmt.Sprintf(`{"Code":"Never.Heard","Message":%q,"RequestId":"R1"}`, quoted(r))), nil
	},
	"a refusal that quotes the signed string": func(r *http.Request) (*http.Response, error) {
		return answerWith(r, 400, fmt.Sprintf(`{"Code":"SignatureDoesNotMatch","Message":"Specified signature is not matched with our calculation. server string to sign is:%s","RequestId":"R1"}`,
			url.QueryEscape(quoted(r)))), nil
	},
	"a page that quotes the request": func(r *http.Request) (*http.Response, error) {
		return answerWith(r, 502, "<html>\n"+strings.ReplaceAll(quoted(r), "&", "&amp;")+"\n</html>"), nil
	},
	"a code that is a number": func(r *http.Request) (*http.Response, error) {
		return answerWith(r, 400, `{"Code":17,"Message":"x"}`), nil
	},
	"a redirect": func(r *http.Request) (*http.Response, error) {
		response := answerWith(r, 307, "")
		response.Header.Set("Location", "http://elsewhere.invalid/"+r.URL.RequestURI())
		return response, nil
	},
	"a list for an object":        func(r *http.Request) (*http.Response, error) { return answerWith(r, 200, `[1,2]`), nil },
	"an object without a content": func(r *http.Request) (*http.Response, error) { return answerWith(r, 200, `{}`), nil },
	"null":                        func(r *http.Request) (*http.Response, error) { return answerWith(r, 200, `null`), nil },
	"another content": func(r *http.Request) (*http.Response, error) {
		return answerWith(r, 200, `{"Requestid":"x","Disk":[]}`), nil
	},
	"a body that breaks off": func(r *http.Request) (*http.Response, error) {
		response := answerWith(r, 200, "")
		response.Body = io.NopCloser(io.MultiReader(strings.NewReader(`{"DiskId":"d-`), broken{}))
		return response, nil
	},
}

type broken struct{}

func (broken) Read([]byte) (int, error) { return 0, io.ErrUnexpectedEOF }

func TestOddAnswersProveNothingAndShowNoSecret(t *testing.T) {
	for name, answer := range oddAnswers {
		for _, op := range operations {
			for _, version := range signature.Versions {
				t.Run(fmt.Sprint(name, "/", op.name, "/", version), func(t *testing.T) {
					synctest.Test(t, func(t *testing.T) { oddAnswerProvesNothing(t, name, answer, op, version) })
				})
			}
		}
	}
}

func oddAnswerProvesNothing(t *testing.T, name string, answer func(*http.Request) (*http.Response, error), op cloudCall, version signature.Version) {
	var signed string
	sent := 0
	c := newClient(t, Config{Signature: version, Transport: roundTrip(func(r *http.Request) (*http.Response, error) {
		sent++
		_, after, _ := strings.Cut(r.Header.Get("Authorization")+"&"+r.URL.RawQuery, "Signature=")
		signed, _, _ = strings.Cut(after, "&")
		return answer(r)
	})})
	err := op.do(t.Context(), c)
	if sent != 1 || signed == "" {
		t.Fatalf("%d requests were sent, want 1; its signature is %q", sent, signed)
	}
	wantNoSecret(t, err, signed, url.QueryEscape(signed))
	want := disk.Unreachable
	switch {
	case strings.Contains(name, "refusal that quotes the request") && !op.mutates:
		want = disk.Unexpected
	case strings.Contains(name, "signed string"):
		want = disk.Unauthenticated
	case op.mutates:
		want = disk.UnknownOutcome
	}
	wantKind(t, err, want)
}

func TestUnreachableMeansThatNothingWasSent(t *testing.T) {
	dial := &net.OpError{Op: "dial", Net: "tcp", Err: errors.New("connection refused")}
	for name, test := range map[string]struct {
		err  error
		want disk.Kind
	}{
		"refused":       {dial, disk.Unreachable},
		"no such host":  {&net.OpError{Op: "dial", Err: &net.DNSError{Err: "no such host", Name: "ecs.invalid"}}, disk.Unreachable},
		"proxy refused": {&net.OpError{Op: "proxyconnect", Err: dial}, disk.Unreachable},
		"reset":         {&net.OpError{Op: "read", Err: errors.New("connection reset by peer")}, disk.UnknownOutcome},
		"write failed":  {&net.OpError{Op: "write", Err: errors.New("broken pipe")}, disk.UnknownOutcome},
		"closed":        {io.EOF, disk.UnknownOutcome},
		"anything else": {errors.New("http2: stream closed"), disk.UnknownOutcome},
	} {
		t.Run(name, func(t *testing.T) {
			c := newClient(t, Config{Transport: roundTrip(func(*http.Request) (*http.Response, error) { return nil, test.err })})
			wantKind(t, c.Delete(t.Context(), "d-bp1a"), test.want)
			_, err := create(t.Context(), c, "vol-1")
			wantKind(t, err, test.want)
			wantKind(t, c.Check(t.Context()), disk.Unreachable)
		})
	}
}

func TestAContextThatHasEndedSendsNothing(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		sim, c := simulate(t, nil)
		ctx, cancel := context.WithCancel(t.Context())
		cancel()
		await := operations[0]
		await.name, await.do = "Await", func(ctx context.Context, c *Client) error { _, err := c.Await(ctx, "d-bp1a", isAvailable); return err }
		for _, op := range append(slices.Clone(operations), await) {
			err := op.do(ctx, c)
			synctest.Wait()
			wantKind(t, err, disk.Unreachable)
			if !errors.Is(err, context.Canceled) {
				t.Errorf("%s: error %v doesn't say that the context was canceled", op.name, err)
			}
		}
		if all := sim.Calls(); len(all) != 0 {
			t.Errorf("calls were made: %v", all)
		}
	})
}

func TestACallThatTheCallerCutsOffHasAnUnknownOutcome(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		sim, c := simulate(t, func(config *ecssim.Config) {
			config.Latency.API = map[string]time.Duration{"": 3 * time.Second}
		})
		ctx, cancel := context.WithTimeout(t.Context(), time.Second)
		defer cancel()
		_, err := create(ctx, c, "vol-1")
		wantKind(t, err, disk.UnknownOutcome)
		if !errors.Is(err, context.DeadlineExceeded) {
			t.Errorf("error %v doesn't say that the deadline has passed", err)
		}
		if n := len(sim.Disks()); n != 1 {
			t.Errorf("ECS has %d disks, want 1", n)
		}
	})
}

func TestACallThatTakesTooLongEndsByItself(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		_, c := simulate(t, func(config *ecssim.Config) {
			config.Latency.API = map[string]time.Duration{"": time.Hour}
		})
		for _, op := range operations {
			began := time.Now()
			err := op.do(t.Context(), c)
			want, limit := disk.Unreachable, 19*time.Second
			switch op.action {
			case "CreateDisk":
				want, limit = disk.UnknownOutcome, 36*time.Second
			case "DeleteDisk":
				want, limit = disk.UnknownOutcome, 16*time.Second
			}
			wantKind(t, err, want)
			if took := time.Since(began); took < limit || took > limit+time.Second {
				t.Errorf("%s took %v, want %v", op.name, took, limit)
			}
		}
	})
}
