package ecs

import (
	"context"
	"errors"
	"fmt"
	"net/url"
	"regexp"
	"strings"

	sdkerrors "github.com/aliyun/alibaba-cloud-sdk-go/sdk/errors"
)

// longestMessage is how much of a foreign text goes into an error.
const longestMessage = 500

// shortestKey is less than any key has; shorter ones would stand in any word.
const shortestKey = 6

// signedText is what ECS quotes when a signature is wrong: the whole query.
const signedText = "server string to sign is"

// secretParameter is a parameter of a signed URL, once or twice percent-encoded.
var secretParameter = regexp.MustCompile(`(?i)(AccessKeyId|SecurityToken|Signature|SignatureNonce|BearerToken)(=|%3D|%253D)[^&\s"']+`)

// lost describes a call without an answer. The SDK's own error holds the signed
// URL, so its text is made anew from the cause; of the causes only the end of
// the caller's context is kept for errors.Is.
func (s *session) lost(ctx context.Context, what string, err error) error {
	if ended := ctx.Err(); ended != nil {
		return fmt.Errorf("%s: %w", what, ended)
	}
	if s.wire.ctx.Err() != nil {
		return fmt.Errorf("%s in time", what)
	}
	return fmt.Errorf("%s: %s", what, s.wire.keys.scrub(oneLine(cause(err))))
}

// cause is the text of the innermost reason of a failed call.
func cause(err error) string {
	var withURL *url.Error
	if errors.As(err, &withURL) {
		err = withURL.Err
	}
	var client *sdkerrors.ClientError
	if errors.As(err, &client) && client.ErrorCode() == sdkerrors.JsonUnmarshalErrorCode {
		return "the reply is not the JSON that was expected"
	}
	return err.Error()
}

// oneLine makes one short line of a text, which may be a web page.
func oneLine(text string) string {
	if at := strings.Index(text, signedText); at >= 0 {
		text = text[:at] + signedText + " not shown"
	}
	text = strings.ToValidUTF8(strings.Join(strings.Fields(text), " "), "?")
	if len(text) > longestMessage {
		text = strings.ToValidUTF8(text[:longestMessage], "") + "..."
	}
	return text
}

// scrub takes the keys out of a text that comes from elsewhere, also where they
// stand percent-encoded, once or twice.
func (k Keys) scrub(text string) string {
	for _, secret := range []string{k.AccessKeySecret, k.SecurityToken, k.AccessKeyID} {
		if len(secret) < shortestKey {
			continue
		}
		once := url.QueryEscape(secret)
		for _, form := range []string{secret, once, url.QueryEscape(once)} {
			text = strings.ReplaceAll(text, form, "***")
		}
	}
	return secretParameter.ReplaceAllString(text, "$1=***")
}
