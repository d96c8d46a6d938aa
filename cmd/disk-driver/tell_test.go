package main

import (
	"context"
	"errors"
	"io"
	"net/http"
	"net/http/httptest"
	"os"
	"path/filepath"
	"strings"
	"testing"

	corev1 "k8s.io/api/core/v1"
	"k8s.io/client-go/tools/record"

	"github.com/topodisk/topodisk/diskdriver/ecs"
	"github.com/topodisk/topodisk/diskdriver/ecs/credentials"
)

func TestEventsTellOfNewsAlone(t *testing.T) {
	recorder := record.NewFakeRecorder(10)
	tell := tellOn(recorder, &corev1.ObjectReference{Kind: "Pod", Name: "p", Namespace: "n"})
	for _, err := range []error{nil, errors.New("no file access-key-id"), errors.New("refused"), nil, nil} {
		tell(err)
	}
	for _, want := range []string{"Warning ECSDoesNotAnswer no file access-key-id", "Warning ECSDoesNotAnswer refused", "Normal ECSAnswers"} {
		select {
		case got := <-recorder.Events:
			if !strings.HasPrefix(got, want) {
				t.Errorf("event is %q, want %q", got, want)
			}
		default:
			t.Errorf("no event %q", want)
		}
	}
	if len(recorder.Events) > 0 {
		t.Errorf("one event too many: %s", <-recorder.Events)
	}
}

func TestWithoutAPodNobodyIsTold(t *testing.T) {
	t.Setenv(podNameVariable, "")
	tell, err := newTeller(parsed(t))
	if err != nil {
		t.Fatal(err)
	}
	tell(errors.New("nobody hears this"))
}

// What is wrong with the keys of a Secret names the Secret and its key, and shows no value.
func TestAFailedCheckNamesTheSecretAndItsKey(t *testing.T) {
	server := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, _ *http.Request) {
		w.WriteHeader(http.StatusForbidden)
		_, _ = io.WriteString(w, `{"Code":"InvalidAccessKeyId.NotFound","Message":"Specified access key is not found.","RequestId":"r"}`)
	}))
	defer server.Close()
	dir := t.TempDir() + "/topodisk-credentials"
	o := parsed(t, "--credentials-dir="+dir)
	check := func() string {
		provider, source, err := credentials.Choose(o.sources(nil))
		if err != nil {
			t.Fatal(err)
		}
		config := o.ecs(provider, nil)
		config.Endpoint = server.URL
		client, err := ecs.NewClient(config)
		if err != nil {
			t.Fatal(err)
		}
		err = signed{client, o.signedWith(source)}.Check(context.Background())
		if err == nil {
			t.Fatal("a check without keys succeeded")
		}
		return err.Error()
	}
	for _, want := range []string{"topodisk-credentials", "access-key-id"} {
		if got := check(); !strings.Contains(got, want) {
			t.Errorf("without files: %s\nwant it to name %s", got, want)
		}
	}
	writeFiles(t, dir, map[string]string{"access-key-id": "LTAI-the-id", "access-key-secret": "the-secret-itself"})
	got := check()
	for _, want := range []string{"topodisk-credentials", "access-key-secret", "InvalidAccessKeyId.NotFound"} {
		if !strings.Contains(got, want) {
			t.Errorf("with a wrong key: %s\nwant it to name %s", got, want)
		}
	}
	if strings.Contains(got, "the-secret-itself") {
		t.Errorf("the error shows the secret: %s", got)
	}

	o.credentialsFiles = []string{"ak", "sk", "token"}
	for _, want := range []string{"topodisk-credentials", "no file ak and sk"} {
		if got := check(); !strings.Contains(got, want) {
			t.Errorf("with keys of other names: %s\nwant it to name %s", got, want)
		}
	}
}

func writeFiles(t *testing.T, dir string, files map[string]string) {
	t.Helper()
	if err := os.MkdirAll(dir, 0o700); err != nil {
		t.Fatal(err)
	}
	for name, text := range files {
		if err := os.WriteFile(filepath.Join(dir, name), []byte(text), 0o600); err != nil {
			t.Fatal(err)
		}
	}
}
