package diskdriver

import (
	"strings"
	"testing"
)

func TestNewNamesWhatIsWrongInTheConfig(t *testing.T) {
	good := Config{Region: "cn-hangzhou", ClusterID: "c1"}
	for want, change := range map[string]func(*Config){
		"region is missing":                    func(c *Config) { c.Region = "" },
		`cluster ID ""`:                        func(c *Config) { c.ClusterID = "" },
		`driver name "no/slash"`:               func(c *Config) { c.Name = "no/slash" },
		`unknown parameters "ignore"`:          func(c *Config) { c.Unknown = "ignore" },
		`PV topology key "zone": allowed are `: func(c *Config) { c.TopologyKey = "zone" },
	} {
		c := good
		change(&c)
		if _, err := New(c, others{}); err == nil || !strings.Contains(err.Error(), want) {
			t.Errorf("got %v, want %q", err, want)
		}
	}
}
