package disk

import (
	"strings"
	"testing"
)

func TestTokenFollowsTheNameAndGeneration(t *testing.T) {
	sixtyTwo := strings.Repeat("a", 62)
	for _, row := range []struct {
		name string
		gen  Generation
		want Token
	}{
		{"disk-1", 1, "n:disk-1"},
		{"disk-1", 2, "disk-1#2"},
		{"disk-1", 11, "disk-1#11"},
		{"with space", 1, "n:with space"},
		{sixtyTwo, 1, "n:" + Token(sixtyTwo)},
		{sixtyTwo, 2, Token(sixtyTwo) + "#2"},
		{sixtyTwo, 10, "h:4TBq8O5eTgTNdpg+7E0fYw#10"},
		{sixtyTwo + "a", 1, "h:VX/jlFAJ/+jQ7VVswuUndg"},
		{"größe", 1, "h:T/fXeedP942fd9dyZCZKqg"},
		{"größe", 2, "h:T/fXeedP942fd9dyZCZKqg#2"},
		{"n:disk", 2, "h:rTUB0lA8ZL9u8Wj38hAd0A#2"},
	} {
		if got := NewToken(row.name, row.gen); got != row.want {
			t.Errorf("NewToken(%q, %d) = %q, want %q", row.name, row.gen, got, row.want)
		}
	}
}

func FuzzTokensOfDifferentNamesDiffer(f *testing.F) {
	f.Add("disk", 1, "n:disk", 1)
	f.Add("disk#2", 1, "n:disk", 2)
	f.Add("n:disk#2", 1, "n:disk", 2)
	f.Add("h:x", 2, "x", 1)
	f.Fuzz(func(t *testing.T, a string, m int, b string, n int) {
		m, n = max(m, 1), max(n, 1)
		x, y := NewToken(a, Generation(m)), NewToken(b, Generation(n))
		if (x == y) != (a == b && m == n) {
			t.Errorf("%q generation %d has %q, %q generation %d has %q", a, m, x, b, n, y)
		}
		if len(x) > longestToken || strings.IndexFunc(string(x), func(r rune) bool { return r > 0x7f }) >= 0 {
			t.Errorf("token %q is not at most %d ASCII bytes", x, longestToken)
		}
	})
}

func TestNamesThatECSCannotKeepAreInvalid(t *testing.T) {
	for name, want := range map[string]string{
		"":                         "name is missing",
		strings.Repeat("a", 129):   "name has 129 bytes; at most 128 are allowed",
		"a\nb":                     `name "a\nb": control characters`,
		"a\xff":                    `name "a\xff": control characters and broken UTF-8`,
		"acs:x":                    "ECS takes no tag",
		"http://x":                 "ECS takes no tag",
		"disk-1":                   "",
		strings.Repeat("a", 128):   "",
		"with space and größe/x,y": "",
	} {
		err := CheckName(name)
		switch {
		case want == "" && err != nil:
			t.Errorf("CheckName(%q) = %v", name, err)
		case want != "" && (err == nil || !strings.Contains(err.Error(), want) || KindOf(err) != Invalid):
			t.Errorf("CheckName(%q) = %v, want %q", name, err, want)
		}
	}
}

func TestDisplayNameIsTheNameIfECSTakesIt(t *testing.T) {
	for name, want := range map[string]string{
		"disk-4f8a": "disk-4f8a",
		"a":         "",
		"4disk":     "",
		"a b":       "",
		"a:_.-9":    "a:_.-9",
		"größe":     "",
		"http://xy": "",
		"@disk":     "",
	} {
		if got := DisplayName(name); got != want {
			t.Errorf("DisplayName(%q) = %q, want %q", name, got, want)
		}
	}
}
