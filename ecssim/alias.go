package ecssim

import "github.com/topodisk/topodisk/ecssim/config"

// ConfigError is a value that the simulator can't work with.
type ConfigError = config.Error
