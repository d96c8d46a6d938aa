package ecssim_test

import (
	"strings"
	"testing"

	"github.com/aliyun/alibaba-cloud-sdk-go/services/ecs"

	"github.com/topodisk/topodisk/ecssim"
)

// request sends a request whose parameters are written as they stand.
func request(t *testing.T, s *ecssim.Server, action, query string) answer {
	t.Helper()
	return send(t, s, "POST", "http://ecs/?Action="+action+"&Version=2014-05-26&Format=JSON&"+query, "")
}

func wantAnswer(t *testing.T, a answer, status int, code string) {
	t.Helper()
	if a.status != status || a.code() != code {
		t.Errorf("got %d %s, want %d %q", a.status, a.text, status, code)
	}
}

// anEmptyWorld has a disk d-bp1... of cloud_auto with a tag that has no value,
// and one of another tag.
func anEmptyWorld(t *testing.T) (*ecssim.Server, string) {
	t.Helper()
	s, c := newServerAndClient(t, unsigned)
	id := create(t, c, func(r *ecs.CreateDiskRequest) {
		r.DiskCategory = "cloud_auto"
		r.Tag = &[]ecs.CreateDiskTag{{Key: "empty"}}
	})
	create(t, c, func(r *ecs.CreateDiskRequest) { r.Tag = &[]ecs.CreateDiskTag{{Key: "empty", Value: "no"}} })
	return s, id
}

func TestParametersThatAreSentEmpty(t *testing.T) {
	const disk = "RegionId=cn-hangzhou&ZoneId=cn-hangzhou-h&DiskCategory=cloud_essd&Size=20"
	for _, tt := range []struct {
		name, action, query string // ID stands for the first disk
		status              int
		code                string
	}{
		{"a mandatory one", "CreateDisk", "RegionId=&ZoneId=cn-hangzhou-h&Size=20", 400, "MissingParameter"},
		{"a mandatory one with a code of its own", "DescribeDisks", "RegionId=", 400, "MissingParamter.RegionId"},
		{"a mandatory list", "TagResources", "RegionId=cn-hangzhou&ResourceType=disk&ResourceId.1=&Tag.1.Key=a", 400, "MissingParameter"},
		{"PerformanceLevel of ModifyDiskSpec", "ModifyDiskSpec", "DiskId=ID&ProvisionedIops=100&PerformanceLevel=", 400, "InvalidDiskCategory.NotSupported"},
		{"DiskCategory of ModifyDiskSpec", "ModifyDiskSpec", "DiskId=ID&ProvisionedIops=100&DiskCategory=", 400, "InvalidDiskCategory.NotSupported"},
		{"neither of ModifyDiskSpec", "ModifyDiskSpec", "DiskId=ID&ProvisionedIops=100", 200, ""},
		{"PerformanceLevel of CreateDisk", "CreateDisk", disk + "&PerformanceLevel=", 200, ""},
		{"a name", "CreateDisk", disk + "&DiskName=&Description=", 200, ""},
		{"a client token", "CreateDisk", disk + "&ClientToken=", 200, ""},
		{"an integer", "DescribeDisks", "RegionId=cn-hangzhou&PageSize=&MaxResults=", 200, ""},
		{"a boolean", "CreateDisk", disk + "&Encrypted=&BurstingEnabled=", 200, ""},
		{"the size", "CreateDisk", "RegionId=cn-hangzhou&ZoneId=cn-hangzhou-h&DiskCategory=cloud_essd&Size=", 400, "MissingParameter"},
		{"a JSON list", "DescribeDisks", "RegionId=cn-hangzhou&DiskIds=", 200, ""},
		{"a tag's value", "CreateDisk", disk + "&Tag.1.Key=a&Tag.1.Value=", 200, ""},
		{"a tag's key", "CreateDisk", disk + "&Tag.1.Key=&Tag.1.Value=a", 400, "InvalidTagKey.Malformed"},
		{"nothing but empty attributes", "ModifyDiskAttribute", "DiskId=ID&DiskName=", 400, "NoAttributeToModify"},
	} {
		t.Run(tt.name, func(t *testing.T) {
			s, id := anEmptyWorld(t)
			wantAnswer(t, request(t, s, tt.action, strings.ReplaceAll(tt.query, "ID", id)), tt.status, tt.code)
		})
	}
}

func TestEmptyTagValueInASearch(t *testing.T) {
	s, id := anEmptyWorld(t)
	for query, want := range map[string]int{"Tag.1.Key=empty": 2, "Tag.1.Key=empty&Tag.1.Value=": 1, "Tag.1.Key=empty&Tag.1.Value=no": 1} {
		a := request(t, s, "DescribeDisks", "RegionId=cn-hangzhou&"+query)
		if n, _ := a.body["TotalCount"].(float64); int(n) != want {
			t.Errorf("%s finds %v disks, want %d", query, a.body["TotalCount"], want)
		}
		if query == "Tag.1.Key=empty&Tag.1.Value=" && !strings.Contains(a.text, id) {
			t.Errorf("%s does not find %s: %s", query, id, a.text)
		}
	}
}

func TestEmptyParametersAreInTheCallLog(t *testing.T) {
	s := newServer(t, unsigned)
	request(t, s, "DescribeDisks", "RegionId=cn-hangzhou&DiskName=&Colour=")
	calls := s.Calls()
	if len(calls) != 1 {
		t.Fatalf("%d calls, want 1", len(calls))
	}
	if value, is := calls[0].Params["DiskName"]; !is || value != "" {
		t.Errorf("parameters %v, want DiskName among them, empty", calls[0].Params)
	}
	if n := s.State().UnknownParams["DescribeDisks Colour"]; n != 1 {
		t.Errorf("Colour counts %d times as unknown, want once", n)
	}
}

func TestClientTokenOfRequestsWithEmptyParameters(t *testing.T) {
	s := newServer(t, unsigned)
	const disk = "RegionId=cn-hangzhou&ZoneId=cn-hangzhou-h&DiskCategory=cloud_essd&Size=20&ClientToken=one"
	first, second := request(t, s, "CreateDisk", disk), request(t, s, "CreateDisk", disk+"&DiskName=")
	if first.body["DiskId"] == nil || first.body["DiskId"] != second.body["DiskId"] {
		t.Errorf("got %s and then %s, want the same disk: an empty DiskName is none", first.text, second.text)
	}
}

func TestNumbersInNamesCountFromOne(t *testing.T) {
	s := newServer(t, unsigned)
	const disk = "RegionId=cn-hangzhou&ZoneId=cn-hangzhou-h&DiskCategory=cloud_essd&Size=20"
	wantAnswer(t, request(t, s, "CreateDisk", disk+"&Tag.0.Key=zero&Tag.01.Key=padded&Tag.%2B1.Key=plus&Tag.1.Key=one"), 200, "")
	if tags := s.Disks()[0].Tags; len(tags) != 1 || tags["one"] != "" {
		t.Errorf("tags %v, want the key one alone", tags)
	}
	unknown := s.State().UnknownParams
	for _, name := range []string{"Tag.0.Key", "Tag.01.Key", "Tag.+1.Key"} {
		if unknown["CreateDisk "+name] != 1 {
			t.Errorf("unknown parameters %v, want %s once", unknown, name)
		}
	}
	wantAnswer(t, request(t, s, "TagResources", "RegionId=cn-hangzhou&ResourceType=disk&ResourceId.0=d-1&Tag.1.Key=a"), 400, "MissingParameter")
}

func TestNumbersAreDigits(t *testing.T) {
	s, id := anEmptyWorld(t)
	for _, size := range []string{"%2B40", "40.0", "4e1", "0x28", "forty", "%2040"} {
		wantAnswer(t, request(t, s, "CreateDisk", "RegionId=cn-hangzhou&ZoneId=cn-hangzhou-h&DiskCategory=cloud_essd&Size="+size), 400, "InvalidSize.ValueNotSupported")
		wantAnswer(t, request(t, s, "ResizeDisk", "DiskId="+id+"&NewSize="+size), 400, "InvalidDataDiskSize.ValueNotSupported")
		wantAnswer(t, request(t, s, "DescribeDisks", "RegionId=cn-hangzhou&PageSize="+size), 400, "InvalidParameter")
	}
}

func TestBodyThatIsTooLongIsAnsweredAndLogged(t *testing.T) {
	s := newServer(t, unsigned)
	const query = "http://ecs/?Action=DescribeDisks&Version=2014-05-26&Format=JSON&RegionId=cn-hangzhou"
	wantAnswer(t, send(t, s, "POST", query, "DiskName="+strings.Repeat("a", 1<<20-9)), 200, "")
	a := send(t, s, "POST", query, "DiskName="+strings.Repeat("a", 1<<20-8))
	wantBody(t, a)
	wantAnswer(t, a, 400, "InvalidParameter")
	calls := s.Calls()
	if len(calls) != 2 || calls[1].Code != "InvalidParameter" || calls[1].Status != 400 {
		t.Errorf("calls %v, want the refusal last", calls)
	}
}
