package watch

import (
	"context"

	"k8s.io/klog/v2"
)

// bodyVerbosity is the --v from which on client-go logs the bodies of requests and replies.
const bodyVerbosity = 8

// withoutBodies returns a context for a request whose reply has secrets: client-go logs no body of it, whatever --v is.
func withoutBodies(ctx context.Context) context.Context {
	logger := klog.FromContext(ctx)
	return klog.NewContext(ctx, logger.WithSink(noBodies{logger.GetSink()}))
}

// noBodies drops what is logged with the verbosity of bodies.
type noBodies struct{ klog.LogSink }

func (s noBodies) Enabled(level int) bool { return level < bodyVerbosity && s.LogSink.Enabled(level) }

func (s noBodies) WithValues(pairs ...any) klog.LogSink {
	return noBodies{s.LogSink.WithValues(pairs...)}
}

func (s noBodies) WithName(name string) klog.LogSink { return noBodies{s.LogSink.WithName(name)} }
