package main

import (
	"encoding/json"
	stderrors "errors"
	"fmt"
	"regexp"
	"slices"
	"strings"
	"time"

	"github.com/aliyun/alibaba-cloud-sdk-go/sdk/errors"
	"github.com/aliyun/alibaba-cloud-sdk-go/sdk/responses"
)

// calls counts the calls of a client, and says which were not answered as the documentation of ECS says.
type calls struct {
	pause time.Duration // between repetitions
	made  int
	wrong []string
}

// errEnded is the panic of a step after which nothing of its kind can be tried.
var errEnded = stderrors.New("the step ends")

// requestID is a UUID in upper case (ECS, Response structure).
var requestID = regexp.MustCompile(`^[0-9A-F]{8}(-[0-9A-F]{4}){3}-[0-9A-F]{12}$`)

func (c *calls) fault(fact, format string, args ...any) {
	c.wrong = append(c.wrong, fact+": "+fmt.Sprintf(format, args...))
}

// step runs a part of the life, as far as it comes.
func (c *calls) step(do func()) {
	defer func() {
		r := recover()
		if err, is := r.(error); r != nil && (!is || !stderrors.Is(err, errEnded)) {
			panic(r)
		}
	}()
	do()
}

// ok makes a call that is to succeed; check says what is wrong with its reply, or nothing.
func ok[R responses.AcsResponse](c *calls, fact string, reply R, err error, check ...string) R {
	c.made++
	if err != nil {
		c.fault(fact, "refused: %v", err)
		panic(errEnded)
	}
	wrong := slices.DeleteFunc(check, func(text string) bool { return text == "" })
	if text := checkReply(reply); text != "" {
		wrong = append(wrong, text)
	}
	if len(wrong) > 0 {
		c.fault(fact, "%s", strings.Join(wrong, "; "))
	}
	return reply
}

// checkReply says what is wrong with what every reply has.
func checkReply(reply responses.AcsResponse) string {
	var body struct{ RequestId string }
	if err := json.Unmarshal(reply.GetHttpContentBytes(), &body); err != nil || !requestID.MatchString(body.RequestId) {
		return fmt.Sprintf("the request ID is %q (%v)", body.RequestId, err)
	}
	if header := reply.GetHttpHeaders()["X-Acs-Request-Id"]; !slices.Equal(header, []string{body.RequestId}) {
		return fmt.Sprintf("the request ID is %q, in the header %q", body.RequestId, header)
	}
	return ""
}

// answer is an error as HTTP status and code, such as "404 InvalidDiskId.NotFound", or "200".
func answer(err error) string {
	var refused *errors.ServerError
	switch {
	case err == nil:
		return "200"
	case stderrors.As(err, &refused):
		return fmt.Sprintf("%d %s", refused.HttpStatus(), refused.ErrorCode())
	}
	return err.Error()
}

// refused makes a call that is to be refused with one of the codes; with "200" among them it may succeed, too, for the
// documentation says both.
func (c *calls) refused(fact string, err error, codes ...string) {
	c.made++
	if got := answer(err); !slices.Contains(codes, got) {
		c.fault(fact, "answered %s, want %s", got, strings.Join(codes, " or "))
		return
	}
	var refused *errors.ServerError
	if stderrors.As(err, &refused) &&
		(!requestID.MatchString(refused.RequestId()) || refused.Message() == "" || refused.HostId() == "" || refused.Recommend() == "") {
		c.fault(fact, "the error lacks something: %#v", refused)
	}
}

// until repeats a read until check finds nothing wrong, for a minute at most. It counts as one call.
func (c *calls) until(fact string, read func() string) {
	c.made++
	for end := time.Now().Add(time.Minute); ; time.Sleep(c.pause) {
		wrong := read()
		if wrong == "" {
			return
		}
		if time.Now().After(end) {
			c.fault(fact, "for a minute: %s", wrong)
			panic(errEnded)
		}
	}
}

// patiently makes a call until it is no longer refused with the code that asks to come back, for a minute at most. It
// counts as one call.
func (c *calls) patiently(fact, later string, call func() error) {
	c.made++
	for end := time.Now().Add(time.Minute); ; time.Sleep(c.pause) {
		err := call()
		if err == nil {
			return
		}
		if answer(err) != later || time.Now().After(end) {
			c.fault(fact, "refused: %v", err)
			panic(errEnded)
		}
	}
}

// is says that a value is not as wanted, or nothing.
func is[T comparable](name string, got, want T) string {
	if got == want {
		return ""
	}
	return fmt.Sprintf("%s is %v, want %v", name, got, want)
}
