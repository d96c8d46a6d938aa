package credentials

import (
	"fmt"
	"os"
	"path/filepath"
	"strings"
	"testing"
	"testing/synctest"
	"time"

	"github.com/prometheus/client_golang/prometheus"

	"github.com/topodisk/topodisk/diskdriver/ecs/internal/ecstest"
)

func TestEnvironmentNamesTheVariableThatIsMissing(t *testing.T) {
	for name, test := range map[string]struct {
		set  Keys
		want string // in the error; none if empty
	}{
		"pair":      {Keys{"the-id", "the-secret", ""}, ""},
		"temporary": {Keys{"the-id", "the-secret", "the-token"}, ""},
		"no secret": {Keys{"the-id", "", ""}, secretVariable},
		"no id":     {Keys{"", "the-secret", ""}, idVariable},
		"token":     {Keys{"", "", "the-token"}, idVariable},
		"nothing":   {Keys{}, idVariable},
	} {
		t.Run(name, func(t *testing.T) {
			t.Setenv(idVariable, test.set.AccessKeyID)
			t.Setenv(secretVariable, test.set.AccessKeySecret)
			t.Setenv(tokenVariable, test.set.SecurityToken)
			got, err := environment().Get(t.Context())
			switch {
			case test.want == "" && (err != nil || got != test.set):
				t.Errorf("error %v", err)
			case test.want != "" && (err == nil || !strings.Contains(err.Error(), test.want)):
				t.Errorf("error %v doesn't name %s", err, test.want)
			case err != nil && strings.Contains(err.Error(), "the-"):
				t.Errorf("error %v shows a value", err)
			}
		})
	}
}

// write puts files into a directory, or takes them away if they are empty.
func write(t *testing.T, dir string, files map[string]string) {
	t.Helper()
	for name, content := range files {
		path := filepath.Join(dir, name)
		if content == "" {
			if err := os.Remove(path); err != nil {
				t.Fatal(err)
			}
			continue
		}
		if err := os.WriteFile(path, []byte(content), 0o600); err != nil {
			t.Fatal(err)
		}
	}
}

// mount puts files into a directory as the kubelet does: into a directory of
// their own, at which the link ..data then points.
func mount(t *testing.T, dir, version string, files map[string]string) {
	t.Helper()
	own := filepath.Join(dir, ".."+version)
	if err := os.Mkdir(own, 0o700); err != nil {
		t.Fatal(err)
	}
	write(t, own, files)
	link := filepath.Join(dir, "..data")
	if err := os.Symlink(own, link+"_tmp"); err != nil {
		t.Fatal(err)
	}
	if err := os.Rename(link+"_tmp", link); err != nil {
		t.Fatal(err)
	}
	for name := range files {
		if _, err := os.Lstat(filepath.Join(dir, name)); err != nil {
			if err := os.Symlink(filepath.Join("..data", name), filepath.Join(dir, name)); err != nil {
				t.Fatal(err)
			}
		}
	}
}

func directoryOf(path string) Provider {
	return &directory{path: path, files: UsualFiles, metrics: newMetrics(fromDirectory)}
}

func TestDirectoryNamesTheFileThatIsWrong(t *testing.T) {
	for name, test := range map[string]struct {
		files map[string]string
		want  Keys
		words string
	}{
		"pair":              {map[string]string{idFile: "the-id\n", secretFile: " the-secret \n"}, Keys{"the-id", "the-secret", ""}, ""},
		"temporary":         {map[string]string{idFile: "the-id", secretFile: "the-secret", tokenFile: "the-token\n"}, Keys{"the-id", "the-secret", "the-token"}, ""},
		"empty token":       {map[string]string{idFile: "the-id", secretFile: "the-secret", tokenFile: "\n"}, Keys{"the-id", "the-secret", ""}, ""},
		"old Secret":        {map[string]string{"id": "the-id", "secret": "the-secret"}, Keys{"the-id", "the-secret", ""}, ""},
		"both spellings":    {map[string]string{"id": "x", "secret": "y", idFile: "the-id", secretFile: "the-secret"}, Keys{"the-id", "the-secret", ""}, ""},
		"no secret":         {map[string]string{idFile: "the-id"}, Keys{}, secretFile},
		"no id":             {map[string]string{secretFile: "the-secret"}, Keys{}, idFile},
		"spellings mixed":   {map[string]string{idFile: "the-id", "secret": "the-secret"}, Keys{}, secretFile},
		"empty id":          {map[string]string{idFile: " \n", secretFile: "the-secret"}, Keys{}, idFile},
		"line break inside": {map[string]string{idFile: "the-id", secretFile: "the\nsecret"}, Keys{}, secretFile},
		"nothing":           {map[string]string{}, Keys{}, idFile},
		"far too large":     {map[string]string{idFile: "the-id", secretFile: strings.Repeat("x", largestFile+1)}, Keys{}, secretFile},
	} {
		t.Run(name, func(t *testing.T) {
			dir := t.TempDir()
			write(t, dir, test.files)
			got, err := directoryOf(dir).Get(t.Context())
			switch {
			case test.words == "" && (err != nil || got != test.want):
				t.Errorf("error %v", err)
			case test.words != "" && (err == nil || !strings.Contains(err.Error(), test.words)):
				t.Errorf("error %v doesn't name %s", err, test.words)
			case err != nil && strings.Contains(err.Error(), "the-"):
				t.Errorf("error %v shows a value", err)
			}
		})
	}
	_, err := directoryOf(filepath.Join(t.TempDir(), "absent")).Get(t.Context())
	if err == nil || !strings.Contains(err.Error(), "absent") {
		t.Errorf("error %v doesn't name the directory", err)
	}
}

// A Secret's keys may be called anything, and errors call them so.
func TestDirectoryReadsFilesOfOtherNames(t *testing.T) {
	dir := t.TempDir()
	write(t, dir, map[string]string{"ak": "the-id", "sk": "the-secret", "token": "the-token", idFile: "another-id", secretFile: "another-secret"})
	credentials, _, err := Choose(Sources{Directory: dir, Files: FileNames{ID: "ak", Secret: "sk", Token: "token"}})
	if err != nil {
		t.Fatal(err)
	}
	if got, err := credentials.Get(t.Context()); err != nil || got != (Keys{"the-id", "the-secret", "the-token"}) {
		t.Errorf("error %v, or other keys than those of the files", err)
	}
	write(t, dir, map[string]string{"ak": "", "sk": ""})
	fresh := &directory{path: dir, files: FileNames{ID: "ak", Secret: "sk", Token: "token"}, metrics: newMetrics(fromDirectory)}
	if _, err := fresh.Get(t.Context()); err == nil || !strings.Contains(err.Error(), "no file ak and sk") {
		t.Errorf("error %v doesn't name the files", err)
	}
}

// rotation is a step of files that change, and the ID that is then in use.
type rotation struct {
	wait  time.Duration
	files map[string]string
	want  string // ID, secret and token
}

func TestRotationNeverMixesTwoPairs(t *testing.T) {
	both := func(n string) map[string]string { return map[string]string{idFile: "id" + n, secretFile: "secret" + n} }
	for name, steps := range map[string][]rotation{
		"all at once": {
			{0, both("1"), "id1 secret1"},
			{0, both("2"), "id1 secret1"},
			{settle, nil, "id2 secret2"},
		},
		"one after another": {
			{0, both("1"), "id1 secret1"},
			{0, map[string]string{idFile: "id2"}, "id1 secret1"},
			{settle / 2, nil, "id1 secret1"},
			{0, map[string]string{secretFile: "secret2"}, "id1 secret1"},
			{settle, nil, "id2 secret2"},
		},
		"a secret that is cut off while it is written": {
			{0, both("1"), "id1 secret1"},
			{0, map[string]string{idFile: "id2", secretFile: "sec"}, "id1 secret1"},
			{settle / 2, map[string]string{secretFile: "secret2"}, "id1 secret1"},
			{settle / 2, nil, "id1 secret1"},
			{settle / 2, nil, "id2 secret2"},
		},
		"a secret that was mistyped": {
			{0, map[string]string{idFile: "id1", secretFile: "typo"}, "id1 typo"},
			{0, both("1"), "id1 typo"},
			{settle, nil, "id1 secret1"},
		},
		"temporary keys, the token last": {
			{0, map[string]string{idFile: "id1", secretFile: "secret1", tokenFile: "token1"}, "id1 secret1 token1"},
			{0, both("2"), "id1 secret1 token1"},
			{settle / 2, nil, "id1 secret1 token1"},
			{0, map[string]string{tokenFile: "token2"}, "id1 secret1 token1"},
			{settle, nil, "id2 secret2 token2"},
		},
		"a file that goes away and comes back": {
			{0, both("1"), "id1 secret1"},
			{0, map[string]string{secretFile: ""}, "id1 secret1"},
			{time.Hour, nil, "id1 secret1"},
			{0, both("2"), "id1 secret1"},
			{settle, nil, "id2 secret2"},
		},
		"a rotation that is taken back": {
			{0, both("1"), "id1 secret1"},
			{0, map[string]string{idFile: "id2"}, "id1 secret1"},
			{settle / 2, both("1"), "id1 secret1"},
			{settle, nil, "id1 secret1"},
		},
	} {
		t.Run(name, func(t *testing.T) {
			dir := t.TempDir()
			synctest.Test(t, func(t *testing.T) {
				d := directoryOf(dir)
				for i, step := range steps {
					time.Sleep(step.wait)
					write(t, dir, step.files)
					got, err := d.Get(t.Context())
					if err != nil {
						t.Fatal(err)
					}
					if text := strings.TrimSpace(got.AccessKeyID + " " + got.AccessKeySecret + " " + got.SecurityToken); text != step.want {
						t.Errorf("step %d: %s, want %s", i, text, step.want)
					}
				}
			})
		})
	}
}

func TestAMountedSecretCountsAtOnce(t *testing.T) {
	dir := t.TempDir()
	d := directoryOf(dir)
	for i := range 3 {
		want := Keys{AccessKeyID: fmt.Sprint("id", i), AccessKeySecret: "the-same"}
		mount(t, dir, fmt.Sprint("v", i), map[string]string{idFile: want.AccessKeyID, secretFile: want.AccessKeySecret})
		got, err := d.Get(t.Context())
		if err != nil || got != want {
			t.Errorf("version %d: ID %s, %v", i, got.AccessKeyID, err)
		}
	}
	if err := os.Remove(filepath.Join(dir, "..v2", secretFile)); err != nil {
		t.Fatal(err)
	}
	if got, err := d.Get(t.Context()); err != nil || got.AccessKeyID != "id2" {
		t.Errorf("after a file was lost: ID %s, %v", got.AccessKeyID, err)
	}
}

func TestKeysAreHiddenWhereverTheyArePrinted(t *testing.T) {
	keys := Keys{AccessKeyID: ecstest.KeyID, AccessKeySecret: ecstest.Secret, SecurityToken: ecstest.Token}
	for _, text := range []string{fmt.Sprint(keys), fmt.Sprintf("%v %+v %#v %s %q", keys, keys, keys, keys, keys),
		fmt.Sprintf("%v", []any{keys, struct{ K Keys }{keys}}), fmt.Sprintf("%v %+v %#v", Static(keys), Static(keys), Static(keys))} {
		for _, secret := range []string{ecstest.KeyID, ecstest.Secret, ecstest.Token} {
			if strings.Contains(text, secret) {
				t.Errorf("%s shows %s", text, secret)
			}
		}
	}
}

func TestFilesThatCantBeReadAreMeasured(t *testing.T) {
	bare(t, nil)
	dir := t.TempDir()
	registry := prometheus.NewRegistry()
	c, source, err := Choose(Sources{Directory: dir, Registerer: registry})
	if err != nil || source != fromDirectory {
		t.Fatal(source, err)
	}
	for i, step := range []struct {
		files   map[string]string
		works   bool
		failing float64
	}{
		{nil, false, 1},
		{map[string]string{idFile: "the-id", secretFile: "the-secret"}, true, 0},
		{map[string]string{secretFile: ""}, true, 1},
		{nil, true, 1},
		{map[string]string{secretFile: "the-secret"}, true, 0},
	} {
		write(t, dir, step.files)
		got, err := c.Get(t.Context())
		if (err == nil) != step.works || step.works && got.AccessKeyID != "the-id" {
			t.Errorf("step %d: %v", i, err)
		}
		if failing := ecstest.Gauge(t, registry, "topodisk_ecs_credentials_failing"); failing != step.failing {
			t.Errorf("step %d: topodisk_ecs_credentials_failing is %v, want %v", i, failing, step.failing)
		}
	}
}
