package ecssim_test

import (
	"encoding/json"
	"io"
	"net/http"
	"net/http/httptest"
	"strings"
	"testing"

	"github.com/topodisk/topodisk/ecssim"
)

// Whatever comes in, what goes out is a JSON object with a request ID, and
// the state stays sound.
func FuzzRequest(f *testing.F) {
	const disk = "Action=CreateDisk&Version=2014-05-26&Format=JSON&RegionId=cn-hangzhou&ZoneId=cn-hangzhou-h&Size=20&DiskCategory=cloud_essd"
	const read = "Action=DescribeDisks&Version=2014-05-26&Format=JSON&RegionId=cn-hangzhou"
	for _, seed := range []struct{ query, form string }{
		{disk, ""},
		{"", disk},
		{disk + "&Tag.1.Key=a&Tag.1.Value=b&Tag.2.Key=c&ClientToken=t", ""},
		{disk + "&Tag.0.Key=a&Tag.-1.Key=b&Tag.99999999999999999999.Key=c&Tag..Key=d&Tag.1.Key.x=e", ""},
		{disk + "&ProvisionedIops=9223372036854775808&BurstingEnabled=TRUE", "Size=-1&Size=2"},
		{read, `DiskIds=["d-1"]&Status=Available`},
		{read, "DiskIds=%5B%5D&MaxResults=-1&NextToken=LTE"},
		{read + "&PageNumber=9223372036854775807&PageSize=100", ""},
		{read + "&Filter.1.Key=CreationStartTime&Filter.1.Value=2000-01-01T00:00Z", ""},
		{"Action=TagResources&Version=2014-05-26&Format=JSON&RegionId=cn-hangzhou&ResourceType=disk", "ResourceId.1=d-1&Tag.1.Key=%FF"},
		{"Action=DescribeInstanceTypes&Version=2014-05-26&Format=json&MaxResults=999&InstanceTypes.1=x", ""},
		{"%zz", ";"},
	} {
		f.Add(seed.query, seed.form)
	}
	f.Fuzz(func(t *testing.T, query, form string) {
		s, err := ecssim.New(ecssim.Config{Region: region, Zones: []string{zoneH}})
		if err != nil {
			t.Fatal(err)
		}
		r := httptest.NewRequest(http.MethodPost, "http://ecs/", strings.NewReader(form))
		r.URL.RawQuery = query
		r.Header.Set("Content-Type", "application/x-www-form-urlencoded")
		for range 2 { // the second time meets what the first one made
			again := r.Clone(r.Context())
			again.Body = io.NopCloser(strings.NewReader(form))
			reply, err := s.RoundTrip(again)
			if err != nil {
				t.Fatal(err)
			}
			var body struct{ RequestId, Code string }
			if err := json.NewDecoder(reply.Body).Decode(&body); err != nil {
				t.Fatalf("the reply is no JSON: %v", err)
			}
			if !requestIDForm.MatchString(body.RequestId) || (reply.StatusCode == 200) != (body.Code == "") {
				t.Errorf("status %d with code %q and request ID %q", reply.StatusCode, body.Code, body.RequestId)
			}
		}
		if err := s.Check(); err != nil {
			t.Error(err)
		}
	})
}
