package transport

import (
	"fmt"
	"io"
)

// longestReply is the most that is read of a reply. A page of 500 disks, the
// longest that is asked for, has less than 2 MiB.
const longestReply = 8 << 20

var errTooLong = fmt.Errorf("the reply is longer than %d MiB", longestReply>>20)

// bounded returns a body that fails where it is longer than a reply may be.
func bounded(body io.ReadCloser) io.ReadCloser {
	return &boundedBody{ReadCloser: body, left: longestReply}
}

type boundedBody struct {
	io.ReadCloser
	left int64
}

// Read fails rather than end: what is cut could pass for the whole.
func (b *boundedBody) Read(p []byte) (int, error) {
	if int64(len(p)) > b.left+1 {
		p = p[:b.left+1]
	}
	n, err := b.ReadCloser.Read(p)
	if b.left -= int64(n); b.left < 0 {
		return 0, errTooLong
	}
	return n, err
}
