// Package audit reads the API server's audit log, and holds it against what programs are granted.
package audit

import (
	"bufio"
	"encoding/json"
	"errors"
	"io"
	"os"
	"strings"
	"time"
)

// Request is one line of the API server's audit log: a request that has been answered. That of a watch is written when the
// watch ends.
type Request struct {
	Verb      string `json:"verb"`
	UserAgent string `json:"userAgent"`
	User      struct {
		Name string `json:"username"`
	} `json:"user"`
	Object struct {
		Group       string `json:"apiGroup"`
		Resource    string `json:"resource"`
		Name        string `json:"name"`
		Namespace   string `json:"namespace"`
		Subresource string `json:"subresource"`
	} `json:"objectRef"`
	Response struct {
		Code int `json:"code"`
	} `json:"responseStatus"`
	Received    time.Time         `json:"requestReceivedTimestamp"`
	Answered    time.Time         `json:"stageTimestamp"`
	Annotations map[string]string `json:"annotations"`
}

// Program is what the request's sender is called.
func (r Request) Program() string {
	program, _, _ := strings.Cut(r.UserAgent, "/")
	return program
}

// Succeeded says whether it was carried out.
func (r Request) Succeeded() bool { return r.Response.Code >= 200 && r.Response.Code < 300 }

// Forbidden says whether its sender had no permission.
func (r Request) Forbidden() bool {
	return r.Annotations["authorization.k8s.io/decision"] == "forbid"
}

// Is says whether it does so to such objects.
func (r Request) Is(verb, resource string) bool {
	return r.Verb == verb && r.Object.Resource == resource
}

// resource is the kind of objects, with a subresource as rules name it: persistentvolumeclaims/status.
func (r Request) resource() string {
	if r.Object.Subresource == "" {
		return r.Object.Resource
	}
	return r.Object.Resource + "/" + r.Object.Subresource
}

// Log is an audit log that is read as it grows.
type Log struct {
	file   *os.File
	reader *bufio.Reader
	rest   string
}

// Open opens the file that the API server writes (Lab.AuditLog).
func Open(path string) (*Log, error) {
	file, err := os.Open(path)
	if err != nil {
		return nil, err
	}
	return &Log{file: file, reader: bufio.NewReaderSize(file, 1<<20)}, nil
}

// Close closes the file.
func (l *Log) Close() error { return l.file.Close() }

// Skip forgets all that was written so far.
func (l *Log) Skip() error {
	_, err := l.Read()
	return err
}

// Read returns the requests that were written since the last time.
func (l *Log) Read() ([]Request, error) {
	var list []Request
	for {
		line, err := l.reader.ReadString('\n')
		l.rest += line
		if errors.Is(err, io.EOF) {
			return list, nil
		}
		if err != nil {
			return nil, err
		}
		var r Request
		if err := json.Unmarshal([]byte(l.rest), &r); err != nil {
			return nil, err
		}
		l.rest = ""
		list = append(list, r)
	}
}
