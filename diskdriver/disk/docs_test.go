package disk

import (
	"os"
	"strings"
	"testing"
)

func TestEveryParameterAndTypeIsDocumented(t *testing.T) {
	page, err := os.ReadFile("../../docs/storageclass.md")
	if err != nil {
		t.Fatal(err)
	}
	for name, k := range classKeys {
		if k.under != nil {
			name += "<key>"
		}
		if !strings.Contains(string(page), "`"+name+"`") {
			t.Errorf("docs/storageclass.md has no parameter %s", name)
		}
	}
	for _, c := range Categories() {
		if !strings.Contains(string(page), "`"+string(c)+"`") {
			t.Errorf("docs/storageclass.md has no disk type %s", c)
		}
	}
	for _, fs := range Filesystems() {
		if !strings.Contains(string(page), "`"+fs+"`") {
			t.Errorf("docs/storageclass.md has no file system %s", fs)
		}
	}
}
