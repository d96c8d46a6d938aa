package main

import (
	"io"
	"strings"
	"testing"
)

func TestJournalCommandErrors(t *testing.T) {
	t.Setenv("POD_NAMESPACE", "kube-system")
	long := "--reason=" + strings.Repeat("x", maxReason+1)
	for _, c := range []struct {
		command journalCommand
		args    []string
		code    int
		says    string
	}{
		{journalList, []string{"uid-1"}, journalFailed, `argument "uid-1" is not allowed`},
		{journalList, []string{"--reason=x"}, journalFailed, "unknown flag: --reason"},
		{journalList, []string{"--driver-name="}, journalFailed, "--driver-name is empty"},
		{journalList, []string{"--kubeconfig=/nowhere/config"}, journalFailed, "--kubeconfig=/nowhere/config"},
		{journalShow, nil, journalFailed, "allowed is one CLAIM-UID"},
		{journalShow, []string{"uid-1", "uid-2"}, journalFailed, `arguments are ["uid-1" "uid-2"]; allowed is one CLAIM-UID`},
		{journalEnd, []string{"uid-1"}, journalRefused, `--reason is ""; allowed is a line of text`},
		{journalEnd, []string{"uid-1", "--reason= "}, journalRefused, `--reason is " "`},
		{journalEnd, []string{"uid-1", "--reason=a\nb"}, journalRefused, `--reason is "a\nb"`},
		{journalEnd, []string{"uid-1", long}, journalRefused, "1 to 200 characters"},
		{journalEnd, []string{"uid-1", "--reason=x", "--wait=-1s"}, journalFailed, "--wait=-1s"},
	} {
		code, err := c.command.start(t.Context(), c.args, io.Discard, io.Discard)
		if code != c.code || err == nil || !strings.Contains(err.Error(), c.says) {
			t.Errorf("%s %q ends with %d, %v; want %d and %q", c.command.name, c.args, code, err, c.code, c.says)
		}
	}
}
