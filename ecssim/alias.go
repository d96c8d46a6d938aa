package ecssim

import (
	"github.com/topodisk/topodisk/ecssim/config"
	"github.com/topodisk/topodisk/ecssim/wire"
)

// What the packages below declare and clients of the simulator use.
type (
	// ConfigError is a value that the simulator can't work with.
	ConfigError = config.Error
	// ErrorCode is a code that an action may be refused with, and its HTTP status.
	ErrorCode = wire.ErrorCode
)

// Codes returns the error codes of an action, as wire.Codes does.
func Codes(action string) []ErrorCode { return wire.Codes(action) }
