package ecssim_test

import (
	"encoding/json"
	"encoding/xml"
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
	const work = "Version=2014-05-26&Format=JSON&RegionId=cn-hangzhou&Action="
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
		{"Action=AssumeRoleWithOIDC&Version=2015-04-01&Format=JSON&RoleArn=acs:ram::1234567890123456:role/driver&RoleSessionName=ab&OIDCProviderArn=acs:ram::1234567890123456:oidc-provider/p", "OIDCToken=a.eyJleHAiOjF9.c"},
		{"Action=ListTagResources&Version=2014-05-26&Format=JSON&RegionId=cn-hangzhou&ResourceType=disk&TagFilter.1.TagKey=a&TagFilter.1.TagValues.1=**x*", ""},
		{"Action=DescribeTags&Version=2014-05-26&Format=JSON&RegionId=cn-hangzhou&PageNumber=2", ""},
		{"%zz", ";"},
		{"Action=DescribeDisks&Version=2014-05-26&RegionId=cn-hangzhou&DiskName=%00<]]>", ""},
		{work + "ModifyDiskSpec&DiskId=d-bp100000000000000001&PerformanceLevel=&Tag.1.Key=", "Size=1"},
		{work + "AttachDisk&DiskId=d-bp100000000000000001&InstanceId=i-1&Device=/dev/xvdaa", "Force=true"},
		{work + "DetachDisk&DiskId=d-bp100000000000000002&InstanceId=i-1&DeleteWithInstance=TRUE", ""},
		{work + "ResizeDisk&DiskId=d-bp100000000000000001&NewSize=9223372036854775807", "Type=online&ClientToken=a"},
		{work + "ModifyDiskSpec&DiskId=d-bp100000000000000001&DiskCategory=cloud_auto&ProvisionedIops=-1", "DryRun=false"},
		{work + "ModifyDiskSpec&DiskId=d-bp100000000000000002&PerformanceLevel=PL0", ""},
		{work + "ModifyDiskAttribute&DiskIds.1=d-bp100000000000000001&DiskIds.2=d-bp100000000000000001&BurstingEnabled=true", "DiskName=a"},
		{work + "CreateSnapshot&DiskId=d-bp100000000000000002&RetentionDays=65537&ClientToken=t", "SnapshotName=auto"},
		{work + "CreateSnapshotGroup&InstanceId=i-1&DiskId.1=d-bp100000000000000002&ExcludeDiskId.0=x", "Tag.1.Key=a"},
		{work + "DescribeSnapshots&SnapshotIds=[]&Filter.2.Key=CreationEndTime&Filter.2.Value=9999-12-31T23:59Z&MaxResults=0", ""},
		{work + "DescribeTasks&TaskIds=,,&StartTime=2000-01-01T00:00:00Z&PageSize=100", ""},
	} {
		f.Add(seed.query, seed.form)
	}
	f.Fuzz(func(t *testing.T, query, form string) {
		s, err := ecssim.New(ecssim.Config{Region: region, Zones: []string{zoneH}, Instances: []ecssim.Instance{{ID: "i-1", Zone: zoneH, Type: "ecs.g6.large"}}})
		if err != nil {
			t.Fatal(err)
		}
		for _, first := range []string{disk, disk, work + "AttachDisk&DiskId=d-bp100000000000000002&InstanceId=i-1"} {
			reply, err := s.RoundTrip(httptest.NewRequest(http.MethodPost, "http://ecs/?"+first, nil))
			if err != nil || reply.StatusCode != 200 {
				t.Fatalf("%s: %v %v", first, reply, err)
			}
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
			decode := json.NewDecoder(reply.Body).Decode
			if reply.Header.Get("Content-Type") == "text/xml;charset=utf-8" {
				decode = xml.NewDecoder(reply.Body).Decode
			}
			if err := decode(&body); err != nil {
				t.Fatalf("the reply is neither JSON nor XML, as it says it is: %v", err)
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

// Whatever the headers of a signature say, nobody without the secret gets in,
// and the answer is an error in ECS's form.
func FuzzSignatureInHeaders(f *testing.F) {
	f.Add("ACS3-HMAC-SHA256 Credential=test-key,SignedHeaders=host;x-acs-action;x-acs-content-sha256;x-acs-date;x-acs-signature-nonce;x-acs-version,Signature=00", "RegionId=cn-hangzhou", "")
	f.Add("ACS3-HMAC-SHA256 Credential=,SignedHeaders=;;;,Signature==", "a&&=b", "x=%zz")
	f.Add("ACS3-", "%zz", "")
	f.Fuzz(func(t *testing.T, authorization, query, form string) {
		s, err := ecssim.New(ecssim.Config{Region: region, Zones: []string{zoneH}, AccessKeys: map[string]string{keyID: secret}})
		if err != nil {
			t.Fatal(err)
		}
		r := httptest.NewRequest(http.MethodPost, "http://ecs/", strings.NewReader(form))
		r.URL.RawQuery = query
		for name, value := range map[string]string{
			"Authorization": authorization, "Content-Type": "application/x-www-form-urlencoded", "X-Acs-Action": "DescribeDisks", "X-Acs-Version": "2014-05-26",
			"X-Acs-Date": "2026-01-01T00:00:00Z", "X-Acs-Signature-Nonce": "1", "X-Acs-Content-Sha256": "e3b0c44298fc1c149afbf4c8996fb92427ae41e4649b934ca495991b7852b855",
		} {
			r.Header.Set(name, value)
		}
		reply, err := s.RoundTrip(r)
		if err != nil {
			t.Fatal(err)
		}
		var body struct{ RequestId, Code string }
		if err := json.NewDecoder(reply.Body).Decode(&body); err != nil || reply.StatusCode < 400 || body.Code == "" || !requestIDForm.MatchString(body.RequestId) {
			t.Errorf("status %d with code %q: %v", reply.StatusCode, body.Code, err)
		}
	})
}
