package ecssim_test

import (
	"encoding/xml"
	"io"
	"net/http"
	"strings"
	"testing"

	"github.com/aliyun/alibaba-cloud-sdk-go/services/ecs"

	"github.com/topodisk/topodisk/ecssim"
)

// get makes an unsigned request and returns the status, the type and the body
// of its reply.
func get(t *testing.T, s *ecssim.Server, query string) (status int, contentType, body string) {
	t.Helper()
	r, err := http.NewRequest("GET", "http://ecs.test/?Version=2014-05-26&"+query, nil)
	if err != nil {
		t.Fatal(err)
	}
	reply, err := s.RoundTrip(r)
	if err != nil {
		t.Fatal(err)
	}
	text, err := io.ReadAll(reply.Body)
	if err != nil {
		t.Fatal(err)
	}
	return reply.StatusCode, reply.Header.Get("Content-Type"), string(text)
}

func TestReplyIsXMLWithoutFormat(t *testing.T) {
	s, c := newServerAndClient(t, unsigned)
	const name = `a<b>&"é`
	tags := func(r *ecs.CreateDiskRequest) {
		r.Tag = &[]ecs.CreateDiskTag{{Key: "first", Value: name}, {Key: "second"}}
	}
	one, two := create(t, c, tags), create(t, c, nil)
	for _, query := range []string{"", "&Format=XML", "&Format=xml"} {
		status, kind, text := get(t, s, "Action=DescribeDisks&DiskType=data&RegionId=cn-hangzhou"+query)
		var got struct {
			XMLName    xml.Name `xml:"DescribeDisksResponse"`
			RequestID  string   `xml:"RequestId"`
			TotalCount int
			Disks      struct {
				Disk []struct {
					DiskID   string `xml:"DiskId"`
					Size     int
					Portable bool
					Tags     struct {
						Tag []struct{ TagKey, TagValue string }
					}
				}
			}
		}
		if err := xml.Unmarshal([]byte(text), &got); err != nil {
			t.Fatalf("%q: %v", text, err)
		}
		disks := got.Disks.Disk
		if status != 200 || !strings.HasPrefix(kind, "text/xml") || !requestIDForm.MatchString(got.RequestID) || got.TotalCount != 2 || len(disks) != 2 {
			t.Fatalf("%q: got %d %s %s", query, status, kind, text)
		}
		if disks[0].DiskID != two || len(disks[0].Tags.Tag) != 0 || disks[1].DiskID != one || disks[1].Size != 20 || !disks[1].Portable {
			t.Errorf("disks %+v", disks)
		}
		if tag := disks[1].Tags.Tag; len(tag) != 2 || tag[0].TagValue != name || tag[1].TagKey != "second" || tag[1].TagValue != "" {
			t.Errorf("tags %+v", tag)
		}
	}
}

func TestErrorIsXMLWithoutFormat(t *testing.T) {
	for _, tt := range []struct{ name, query, code, mentions string }{
		{"an unknown action", "Action=MakeDisk", "InvalidAction.NotFound", "MakeDisk"},
		{"a format that is neither", "Action=DescribeDisks&RegionId=cn-hangzhou&Format=YAML", "InvalidParameter", "JSON or XML"},
		{"an empty format", "Action=DescribeDisks&RegionId=cn-hangzhou&Format=", "InvalidParameter", "JSON or XML"},
	} {
		t.Run(tt.name, func(t *testing.T) {
			status, kind, text := get(t, newServer(t, unsigned), tt.query)
			var got struct {
				XMLName                          xml.Name `xml:"Error"`
				Code, Message, HostId, RequestId string
			}
			if err := xml.Unmarshal([]byte(text), &got); err != nil {
				t.Fatalf("%q: %v", text, err)
			}
			if status < 400 || !strings.HasPrefix(kind, "text/xml") || got.Code != tt.code || !strings.Contains(got.Message, tt.mentions) || got.HostId != "ecs.test" || got.RequestId == "" {
				t.Errorf("got %d %s %s", status, kind, text)
			}
		})
	}
}

func TestFormatIsReadInAnyCase(t *testing.T) {
	for _, format := range []string{"JSON", "json", "Json"} {
		if status, kind, text := get(t, newServer(t, unsigned), "Action=DescribeRegions&Format="+format); status != 200 || !strings.HasPrefix(kind, "application/json") || text[0] != '{' {
			t.Errorf("%s: got %d %s %s", format, status, kind, text)
		}
	}
}
