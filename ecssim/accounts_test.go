package ecssim_test

import (
	"net/http/httptest"
	"testing"

	"github.com/aliyun/alibaba-cloud-sdk-go/sdk"
	"github.com/aliyun/alibaba-cloud-sdk-go/sdk/auth/credentials"
	"github.com/aliyun/alibaba-cloud-sdk-go/services/ecs"

	"github.com/topodisk/topodisk/ecssim"
)

// TestAccountsSeeTheirOwn: each key sees the disks of its account, in process
// and over a connection, and a key that nobody has sees none.
func TestAccountsSeeTheirOwn(t *testing.T) {
	first := newServer(t, func(c *ecssim.Config) { c.AccessKeys = map[string]string{"one": "secret-1"} })
	other := newServer(t, func(c *ecssim.Config) {
		c.AccessKeys, c.Account, c.Seed = map[string]string{"two": "secret-2"}, "2345678901234567", 1
	})
	accounts := ecssim.Accounts{first, other}
	served := httptest.NewServer(accounts)
	defer served.Close()
	client := func(id, secret string, overHTTP bool) *ecs.Client {
		t.Helper()
		config := sdk.NewConfig().WithScheme("HTTP")
		if !overHTTP {
			config.Transport = accounts
		}
		c, err := ecs.NewClientWithOptions(region, config, credentials.NewAccessKeyCredential(id, secret))
		ok(t, err)
		c.Domain = served.Listener.Addr().String()
		return c
	}
	for _, overHTTP := range []bool{false, true} {
		one, two := client("one", "secret-1", overHTTP), client("two", "secret-2", overHTTP)
		mine, yours := create(t, one, nil), create(t, two, nil)
		if mine == yours {
			t.Errorf("both accounts have a disk %s", mine)
		}
		wantCode(t, remove(one, yours), 404, "InvalidDiskId.NotFound")
		wantCode(t, remove(two, mine), 404, "InvalidDiskId.NotFound")
		wantCode(t, remove(client("three", "secret-1", overHTTP), mine), 404, "InvalidAccessKeyId.NotFound")
		ok(t, remove(one, mine))
		ok(t, remove(two, yours))
	}
}
