package credentials

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"io/fs"
	"os"
	"path/filepath"
	"sync"
	"time"

	"k8s.io/klog/v2"
)

// The files of a directory of credentials. A Kubernetes Secret mounted as a
// volume has one file for each of its keys.
const (
	idFile     = "access-key-id"
	secretFile = "access-key-secret"
	tokenFile  = "security-token"
)

// FileNames are what the files of a directory of credentials are called.
type FileNames struct{ ID, Secret, Token string }

// UsualFiles are the names that are read if no others are given.
var UsualFiles = FileNames{ID: idFile, Secret: secretFile, Token: tokenFile}

// spellings are the names that stand for the usual ones: they themselves first,
// then those of the Secret csi-access-key of other disk drivers.
var spellings = []FileNames{UsualFiles, {ID: "id", Secret: "secret", Token: tokenFile}}

// settle is how long changed files must stay as they are until they are used, where
// nothing else shows that they belong together: the rest of a rotation may follow.
const settle = 10 * time.Second

// largestFile is more than any key or token has.
const largestFile = 64 << 10

// directory reads the files access-key-id, access-key-secret and, for temporary
// keys, security-token of a directory; id and secret are taken for the first
// two. White space around a value is ignored. The files are read for every call,
// so a rotation needs no restart.
//
// An ID is never signed with the secret of another. Kubernetes replaces all
// files of a volume at once, and then the new ones count at once. Where files
// are written one after another, the old keys stay in use until nothing has
// changed for ten seconds. While files are missing or can't be read, the old keys
// stay in use and the log says why, once.
type directory struct {
	path    string
	files   FileNames
	metrics *metrics

	mu      sync.Mutex
	current Keys      // in use; zero until a read succeeded
	next    Keys      // read since, but not yet used
	since   time.Time // when next was first read
	failure string    // of the last read, if it failed
}

// Get returns the keys in use. It fails only as long as no read has succeeded.
func (d *directory) Get(context.Context) (Keys, error) {
	d.mu.Lock()
	defer d.mu.Unlock()
	read, atOnce, err := d.read()
	if err != nil {
		return d.keep(err)
	}
	if d.failure != "" {
		d.failure = ""
		klog.InfoS("Credentials can be read again", "directory", d.path)
		d.metrics.failing.Set(0)
	}
	d.adopt(read, atOnce, time.Now())
	return d.current, nil
}

// keep returns the old keys, if there are any, and logs and counts a failure
// that is new.
func (d *directory) keep(err error) (Keys, error) {
	if d.failure != err.Error() {
		d.failure = err.Error()
		d.metrics.failed()
		if d.current != (Keys{}) {
			klog.ErrorS(err, "Credentials can't be read again; the old ones stay in use", "directory", d.path)
		}
	}
	if d.current == (Keys{}) {
		return Keys{}, err
	}
	return d.current, nil
}

// adopt decides whether keys that were just read replace the keys in use.
func (d *directory) adopt(read Keys, atOnce bool, now time.Time) {
	if read == d.current {
		d.next = Keys{}
		return
	}
	if read != d.next {
		d.next, d.since = read, now
	}
	if atOnce || d.current == (Keys{}) || now.Sub(d.since) >= settle {
		d.current, d.next = read, Keys{}
		d.metrics.renewed(time.Time{})
	}
}

// read returns the keys in the files, and whether they were put there at once.
// The kubelet points the link ..data at a directory that it never changes, so
// what is read through one resolved link belongs together.
func (d *directory) read() (keys Keys, atOnce bool, err error) {
	for range 3 {
		link := filepath.Join(d.path, "..data")
		base, err := filepath.EvalSymlinks(link)
		if errors.Is(err, fs.ErrNotExist) {
			keys, err := d.files.read(d.path)
			return keys, false, err
		}
		if err != nil {
			return Keys{}, false, fmt.Errorf("credentials directory: %w", err)
		}
		keys, err := d.files.read(base)
		if again, _ := filepath.EvalSymlinks(link); again == base {
			return keys, true, err
		}
	}
	return Keys{}, false, fmt.Errorf("credentials directory %s: its files change faster than they can be read", d.path)
}

// read reads the files of one directory.
func (n FileNames) read(base string) (Keys, error) {
	names := []FileNames{n}
	if n == UsualFiles {
		names = spellings
	}
	for _, name := range names {
		id, idErr := readFile(base, name.ID)
		secret, secretErr := readFile(base, name.Secret)
		if errors.Is(idErr, fs.ErrNotExist) && errors.Is(secretErr, fs.ErrNotExist) {
			continue
		}
		token, tokenErr := readFile(base, name.Token)
		if errors.Is(tokenErr, fs.ErrNotExist) || errors.Is(tokenErr, errEmpty) {
			tokenErr = nil
		}
		if err := errors.Join(idErr, secretErr, tokenErr); err != nil {
			return Keys{}, err
		}
		return Keys{AccessKeyID: id, AccessKeySecret: secret, SecurityToken: token}, nil
	}
	return Keys{}, fmt.Errorf("credentials directory %s: no file %s and %s", base, n.ID, n.Secret)
}

// errEmpty is the end of what is said of a file that holds nothing.
var errEmpty = errors.New("is empty")

// readFile returns what one file holds, without the white space around it. Its
// errors name the file and never what is in it.
func readFile(base, name string) (string, error) {
	path := filepath.Join(base, name)
	info, err := os.Stat(path)
	if err != nil {
		return "", fmt.Errorf("credentials file: %w", err)
	}
	if !info.Mode().IsRegular() || info.Size() > largestFile {
		return "", fmt.Errorf("credentials file %s: a regular file of at most %d bytes is required", path, largestFile)
	}
	content, err := os.ReadFile(path)
	if err != nil {
		return "", fmt.Errorf("credentials file: %w", err)
	}
	value := bytes.TrimSpace(content)
	switch {
	case len(value) == 0:
		return "", fmt.Errorf("credentials file %s %w", path, errEmpty)
	case bytes.ContainsAny(value, "\x00\r\n\t "):
		return "", fmt.Errorf("credentials file %s: white space inside the value is not allowed", path)
	}
	return string(value), nil
}
