package ecs

import (
	"testing"
	"testing/synctest"
	"time"

	"github.com/topodisk/topodisk/diskdriver/disk"
	"github.com/topodisk/topodisk/ecssim"
)

// TestAccountsAreApart: each account sees its own disks and is throttled alone.
func TestAccountsAreApart(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		limited := newSim(t, func(c *ecssim.Config) { c.Throttle.Limits = map[string]int{"DescribeDisks": 3} })
		free := newSim(t, func(c *ecssim.Config) {
			c.AccessKeys, c.SecurityTokens, c.Seed = map[string]string{"another": "secret"}, nil, 1
		})
		own := newClient(t, Config{Transport: ecssim.Accounts{limited, free}})
		other, err := own.Account(map[string]string{"id": "another", "secret": "secret"})
		if err != nil {
			t.Fatal(err)
		}
		first, err := create(t.Context(), own, "vol-1")
		if err != nil {
			t.Fatal(err)
		}
		second, err := create(t.Context(), other, "vol-1")
		if err != nil {
			t.Fatal(err)
		}
		if _, err := other.Get(t.Context(), first.ID); disk.KindOf(err) != disk.NotFound {
			t.Errorf("the other account sees the first one's disk: %v", err)
		}
		began := time.Now()
		for range 20 {
			if _, err := other.Get(t.Context(), second.ID); err != nil {
				t.Fatal(err)
			}
		}
		freely := time.Since(began)
		for range 4 {
			if _, err := own.Get(t.Context(), first.ID); err != nil {
				t.Fatal(err)
			}
		}
		if held := time.Since(began) - freely; held < 10*time.Second {
			t.Fatalf("the first account was not throttled, which this test wants: %v", held)
		}
		began = time.Now()
		if _, err := other.Get(t.Context(), second.ID); err != nil || time.Since(began) > 5*time.Second {
			t.Errorf("the other account waits for the first one's window: %v, %v", time.Since(began), err)
		}
	})
}
