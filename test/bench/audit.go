package main

import (
	"bufio"
	"encoding/json"
	"errors"
	"io"
	"os"
	"strings"
	"time"
)

// request is one line of the API server's audit log.
type request struct {
	Verb      string `json:"verb"`
	UserAgent string `json:"userAgent"`
	Object    struct {
		Resource    string `json:"resource"`
		Name        string `json:"name"`
		Namespace   string `json:"namespace"`
		Subresource string `json:"subresource"`
	} `json:"objectRef"`
	Response struct {
		Code int `json:"code"`
	} `json:"responseStatus"`
	Received time.Time `json:"requestReceivedTimestamp"`
	Answered time.Time `json:"stageTimestamp"`
}

// by says whether a program has sent it.
func (r request) by(program string) bool { return strings.HasPrefix(r.UserAgent, program+"/") }

func (r request) succeeded() bool { return r.Response.Code >= 200 && r.Response.Code < 300 }

func (r request) is(verb, resource string) bool {
	return r.Verb == verb && r.Object.Resource == resource
}

// auditLog is read as it grows.
type auditLog struct {
	file   *os.File
	reader *bufio.Reader
	rest   string
}

func openAudit(path string) (*auditLog, error) {
	file, err := os.Open(path)
	if err != nil {
		return nil, err
	}
	return &auditLog{file: file, reader: bufio.NewReaderSize(file, 1<<20)}, nil
}

// skip forgets all that was written so far.
func (a *auditLog) skip() error {
	_, err := a.read()
	return err
}

// read returns the requests that were written since the last time.
func (a *auditLog) read() ([]request, error) {
	var list []request
	for {
		line, err := a.reader.ReadString('\n')
		a.rest += line
		if errors.Is(err, io.EOF) {
			return list, nil
		}
		if err != nil {
			return nil, err
		}
		var r request
		if err := json.Unmarshal([]byte(a.rest), &r); err != nil {
			return nil, err
		}
		a.rest = ""
		list = append(list, r)
	}
}

// asked is what a program has asked the API server.
type asked struct{ writes, journal, reads, events, leases int }

// count leaves out the lists and watches by which caches are filled.
func count(requests []request, program string) asked {
	var t asked
	for _, r := range requests {
		write := r.Verb != "get" && r.Verb != "list" && r.Verb != "watch"
		switch resource := r.Object.Resource; {
		case !r.by(program) || resource == "":
		case resource == "events":
			t.events++
		case resource == "leases":
			t.leases++
		case write && resource == "configmaps":
			t.journal++
		case write:
			t.writes++
		case r.Verb == "get" && resource != "configmaps":
			t.reads++
		}
	}
	return t
}
