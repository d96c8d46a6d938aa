package prices

import (
	"strings"
	"testing"
)

const table = `
currency: CNY
perGiBMonth:
  cloud_essd: 0.9
  cloud_essd/PL2: 2
  cloud_essd/PL1/cn-hangzhou-h: 1.5
  cloud_essd/cn-hangzhou-k: 0.8
  cloud_auto/ap-southeast-1a: 0.5
  snapshot: 0.12
  cloud_efficiency: 0
`

func TestMistakesAreNamed(t *testing.T) {
	for text, want := range map[string]string{
		table:                             "",
		"":                                `currency "" is not allowed`,
		"currency: yuan":                  `currency "yuan" is not allowed: allowed is a code of three capital letters`,
		"currency: CNY":                   "perGiBMonth has no price",
		"currency: CNY\nprices: {}":       `unknown field "prices"`,
		"currency: CNY\nperGiBMonth: [1]": "it is no price table",
		"currency: CNY\nperGiBMonth: {cloud_essd: x}":                   "it is no price table",
		"currency: CNY\nperGiBMonth: {cloud_essd: 1, cloud_essd: 2}":    `"cloud_essd" already set`,
		"currency: CNY\nperGiBMonth: {cloud_esd: 1}":                    `"cloud_esd" is no disk category; allowed are cloud, cloud_auto, `,
		"currency: CNY\nperGiBMonth: {cloud_essd: -1}":                  "cloud_essd: -1 is not allowed: allowed is a number from 0",
		"currency: CNY\nperGiBMonth: {cloud_essd/PL9: 1}":               "cloud_essd has no performance level PL9; allowed are PL0, PL1, PL2, PL3",
		"currency: CNY\nperGiBMonth: {cloud_auto/PL1: 1}":               "cloud_auto has no performance level PL1; allowed are none",
		"currency: CNY\nperGiBMonth: {cloud_essd/cn-hangzhou-h/PL1: 1}": `"cn-hangzhou-h/PL1" is no zone; allowed is category[/performance level][/zone]`,
		"currency: CNY\nperGiBMonth: {cloud_essd/Hangzhou: 1}":          `"Hangzhou" is no zone`,
		"currency: CNY\nperGiBMonth: {snapshot/PL1: 1}":                 "snapshot has no performance level PL1",
	} {
		_, err := Parse([]byte(text))
		if got := message(err); !strings.Contains(got, want) || (want == "") != (err == nil) {
			t.Errorf("%q: got %q, want %q", text, got, want)
		}
	}
}

func message(err error) string {
	if err == nil {
		return ""
	}
	return err.Error()
}

func TestTheMostSpecificPriceCounts(t *testing.T) {
	prices, err := Parse([]byte(table))
	if err != nil {
		t.Fatal(err)
	}
	for _, c := range []struct {
		category, level, zone string
		want                  float64
		known                 bool
	}{
		{"cloud_essd", "PL1", "cn-hangzhou-h", 150, true},
		{"cloud_essd", "", "cn-hangzhou-h", 150, true},
		{"cloud_essd", "PL2", "cn-hangzhou-k", 200, true},
		{"cloud_essd", "PL0", "cn-hangzhou-k", 80, true},
		{"cloud_essd", "PL0", "cn-hangzhou-h", 90, true},
		{"cloud_auto", "", "ap-southeast-1a", 50, true},
		{"cloud_auto", "", "ap-southeast-1b", 0, false},
		{"cloud_efficiency", "", "", 0, true},
		{"snapshot", "", "", 12, true},
		{"cloud_ssd", "", "cn-hangzhou-h", 0, false},
	} {
		if got, known := prices.PerMonth(c.category, c.level, c.zone, 100); got != c.want || known != c.known {
			t.Errorf("%s %s in %s: %v %v, want %v %v", c.category, c.level, c.zone, got, known, c.want, c.known)
		}
	}
}
