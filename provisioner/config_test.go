package provisioner

import (
	"strings"
	"testing"
)

func TestConfigValidateNamesTheField(t *testing.T) {
	if err := testConfig().Validate(); err != nil {
		t.Fatal(err)
	}
	for want, change := range map[string]func(*Config){
		"--volume-name-prefix":   func(c *Config) { c.VolumeNamePrefix = "" },
		"--timeout":              func(c *Config) { c.Timeout = 0 },
		"--retry-interval-start": func(c *Config) { c.RetryStart = 0 },
		"--retry-interval-max":   func(c *Config) { c.RetryMax = 0 },
		"--worker-threads=0":     func(c *Config) { c.Workers = 0 },
	} {
		c := testConfig()
		change(&c)
		if err := c.Validate(); err == nil || !strings.Contains(err.Error(), want) {
			t.Errorf("got %v, want %q", err, want)
		}
	}
}
