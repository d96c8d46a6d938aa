package ecssim_test

import (
	"fmt"
	"slices"
	"testing"

	"github.com/aliyun/alibaba-cloud-sdk-go/sdk/requests"
	"github.com/aliyun/alibaba-cloud-sdk-go/services/ecs"

	"github.com/topodisk/topodisk/ecssim"
)

func TestInstancesAreFoundByIDAndZone(t *testing.T) {
	c := newClient(t, newServer(t, nil))
	for _, tt := range []struct {
		name   string
		change func(*ecs.DescribeInstancesRequest)
		want   []string
	}{
		{"all", func(*ecs.DescribeInstancesRequest) {}, []string{"i-1", "i-2"}},
		{"by ID", func(r *ecs.DescribeInstancesRequest) { r.InstanceIds = `["i-2","i-9"]` }, []string{"i-2"}},
		{"by no ID", func(r *ecs.DescribeInstancesRequest) { r.InstanceIds = `[]` }, nil},
		{"by zone", func(r *ecs.DescribeInstancesRequest) { r.ZoneId = zoneH }, []string{"i-1"}},
		{"by type", func(r *ecs.DescribeInstancesRequest) { r.InstanceType = "ecs.g6se.26xlarge" }, []string{"i-2"}},
		{"by family", func(r *ecs.DescribeInstancesRequest) { r.InstanceTypeFamily = "ecs.g6" }, []string{"i-1"}},
		{"running", func(r *ecs.DescribeInstancesRequest) { r.Status = "Running" }, []string{"i-1", "i-2"}},
		{"stopped", func(r *ecs.DescribeInstancesRequest) { r.Status = "Stopped" }, nil},
	} {
		t.Run(tt.name, func(t *testing.T) {
			r := ecs.CreateDescribeInstancesRequest()
			tt.change(r)
			reply, err := c.DescribeInstances(r)
			if err != nil {
				t.Fatal(err)
			}
			var got []string
			for _, i := range reply.Instances.Instance {
				got = append(got, i.InstanceId)
				if i.Status != "Running" || !i.IoOptimized || i.RegionId != region || i.ZoneId == "" || i.InstanceTypeFamily == "" {
					t.Errorf("instance %+v", i)
				}
			}
			if !slices.Equal(got, tt.want) {
				t.Errorf("instances %v, want %v", got, tt.want)
			}
		})
	}
}

func TestDescribeInstancesRefuses(t *testing.T) {
	c := newClient(t, newServer(t, nil))
	for _, tt := range []struct {
		name   string
		change func(*ecs.DescribeInstancesRequest)
		status int
		code   string
	}{
		{"101 IDs", func(r *ecs.DescribeInstancesRequest) { r.InstanceIds = idList(slices.Repeat([]string{"i-1"}, 101)...) }, 403, "InvalidInstanceIds.Malformed"},
		{"a comma list", func(r *ecs.DescribeInstancesRequest) { r.InstanceIds = "i-1,i-2" }, 400, "InvalidParameter.InstanceIds"},
		{"an unknown status", func(r *ecs.DescribeInstancesRequest) { r.Status = "Asleep" }, 400, "InvalidStatus.ValueNotSupported"},
		{"a page of 101", func(r *ecs.DescribeInstancesRequest) { r.PageSize = "101" }, 400, "InvalidParameter"},
	} {
		t.Run(tt.name, func(t *testing.T) {
			r := ecs.CreateDescribeInstancesRequest()
			tt.change(r)
			_, err := c.DescribeInstances(r)
			wantCode(t, err, tt.status, tt.code)
		})
	}
}

func TestInstancesArePaged(t *testing.T) {
	s := newServer(t, func(c *ecssim.Config) {
		for i := range 120 {
			c.Instances = append(c.Instances, ecssim.Instance{ID: fmt.Sprintf("i-x%d", i), Zone: zoneH, Type: "ecs.g6.large"})
		}
	})
	for ask, want := range map[int]int{5: 10, 50: 50, 500: 100} {
		r := ecs.CreateDescribeInstancesRequest()
		r.MaxResults = requests.NewInteger(ask)
		reply, err := newClient(t, s).DescribeInstances(r)
		if err != nil {
			t.Fatal(err)
		}
		if got := len(reply.Instances.Instance); got != want || reply.NextToken == "" {
			t.Errorf("MaxResults %d shows %d, next %q; want %d and more to come", ask, got, reply.NextToken, want)
		}
	}
}

func TestInstanceTypes(t *testing.T) {
	_, c := newServerAndClient(t, func(c *ecssim.Config) {
		c.InstanceTypes = []ecssim.InstanceType{
			{ID: "ecs.big.huge", DiskQuantity: 100, NVMe: "supported"}, {ID: "ecs.u1-c1m2.large", DiskQuantity: 9, NVMe: "unsupported"},
		}
	})
	for _, tt := range []struct {
		name   string
		change func(*ecs.DescribeInstanceTypesRequest)
		want   []string
	}{
		{"by name", func(r *ecs.DescribeInstanceTypesRequest) {
			r.InstanceTypes = &[]string{"ecs.g6.large", "ecs.none.large", "ecs.u1-c1m2.large"}
		}, []string{"ecs.g6.large ecs.g6 17 unsupported", "ecs.u1-c1m2.large ecs.u1 9 unsupported"}},
		{"by family", func(r *ecs.DescribeInstanceTypesRequest) { r.InstanceTypeFamily = "ecs.u1" }, []string{
			"ecs.u1-c1m2.large ecs.u1 9 unsupported", "ecs.u1-c1m4.xlarge ecs.u1 9 unsupported",
		}},
		{"by another family of such names", func(r *ecs.DescribeInstanceTypesRequest) {
			r.InstanceTypeFamily, r.MinimumDiskQuantity = "ecs.gn8v-tee", "33"
		}, []string{"ecs.gn8v-tee-8x.16xlarge ecs.gn8v-tee 33 required", "ecs.gn8v-tee-8x.48xlarge ecs.gn8v-tee 65 required"}},
		{"by disks", func(r *ecs.DescribeInstanceTypesRequest) { r.MinimumDiskQuantity = "66" }, []string{"ecs.big.huge ecs.big 100 supported"}},
		{"by NVMe", func(r *ecs.DescribeInstanceTypesRequest) {
			r.NvmeSupport, r.InstanceTypeFamily, r.MinimumDiskQuantity = "required", "ecs.g7se", "31"
		}, []string{"ecs.g7se.16xlarge ecs.g7se 57 required", "ecs.g7se.8xlarge ecs.g7se 31 required"}},
	} {
		t.Run(tt.name, func(t *testing.T) {
			r := ecs.CreateDescribeInstanceTypesRequest()
			tt.change(r)
			reply, err := c.DescribeInstanceTypes(r)
			if err != nil {
				t.Fatal(err)
			}
			var got []string
			for _, i := range reply.InstanceTypes.InstanceType {
				got = append(got, fmt.Sprint(i.InstanceTypeId, " ", i.InstanceTypeFamily, " ", i.DiskQuantity, " ", i.NvmeSupport))
			}
			if !slices.Equal(got, tt.want) {
				t.Errorf("types %v, want %v", got, tt.want)
			}
		})
	}
	r := ecs.CreateDescribeInstanceTypesRequest()
	names := slices.Repeat([]string{"ecs.g6.large"}, 11)
	r.InstanceTypes = &names
	_, err := c.DescribeInstanceTypes(r)
	wantCode(t, err, 400, "InvalidParameter")
}

func TestCallerIdentity(t *testing.T) {
	s := newServer(t, unsigned)
	a := send(t, s, "POST", "http://sts/?Action=GetCallerIdentity&Version=2015-04-01&Format=JSON", "")
	if a.status != 200 || a.body["AccountId"] != "1234567890123456" || a.body["IdentityType"] != "Account" {
		t.Errorf("got %d %s", a.status, a.text)
	}
}
