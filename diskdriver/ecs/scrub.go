package ecs

import (
	"context"
	"errors"
	"fmt"
	"net/url"

	sdkerrors "github.com/aliyun/alibaba-cloud-sdk-go/sdk/errors"
)

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
	return fmt.Errorf("%s: %s", what, s.wire.keys.Redact(cause(err)))
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
