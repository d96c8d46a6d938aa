package ecssim_test

import (
	"errors"
	"reflect"
	"strings"
	"sync/atomic"
	"testing"
	"testing/synctest"
	"time"

	"github.com/aliyun/alibaba-cloud-sdk-go/services/ecs"

	"github.com/topodisk/topodisk/ecssim"
)

func TestEveryFieldOfDoubtsHasASetting(t *testing.T) {
	fields := map[string]bool{}
	for _, s := range ecssim.Settings() {
		fields[s.Field] = true
	}
	for _, f := range reflect.VisibleFields(reflect.TypeFor[ecssim.Doubts]()) {
		if !fields["Doubts."+f.Name] {
			t.Errorf("Doubts.%s has no setting", f.Name)
		}
	}
}

func TestSettingsTakeEachOfTheirValues(t *testing.T) {
	for _, s := range ecssim.Settings() {
		for _, value := range s.Values {
			c := ecssim.Config{Region: region, Zones: []string{zoneH}}
			if err := s.Set(&c, value); err != nil {
				t.Error(err)
			}
			if got := s.Get(c); got != value {
				t.Errorf("%s is %q after it was set to %q", s.Name, got, value)
			}
			if _, err := ecssim.New(c); err != nil {
				t.Errorf("%s=%s: %v", s.Name, value, err)
			}
		}
		var wrong *ecssim.ConfigError
		var c ecssim.Config
		if err := s.Set(&c, "no-such-value"); !errors.As(err, &wrong) || wrong.Field != s.Field || !strings.Contains(err.Error(), s.Values[0]) {
			t.Errorf("%s: error %v, want one that names %s and what is allowed", s.Name, err, s.Field)
		}
	}
}

func TestListSettingsTakeChanges(t *testing.T) {
	for _, s := range ecssim.Settings() {
		if s.Name != "snapshot-unattached" {
			continue
		}
		var c ecssim.Config
		for _, step := range []struct{ value, want string }{
			{"-cloud_auto", "cloud_essd"}, {"+cloud_ssd", "cloud_essd,cloud_ssd"}, {"-cloud_auto", "cloud_essd,cloud_ssd"},
			{"none", "none"}, {"cloud_ssd,cloud_auto", "cloud_auto,cloud_ssd"},
		} {
			if err := s.Set(&c, step.value); err != nil || s.Get(c) != step.want {
				t.Errorf("after %q: %q %v, want %q", step.value, s.Get(c), err, step.want)
			}
		}
	}
}

func TestCreatingDisksAreTakenOrRefused(t *testing.T) {
	for _, refuse := range []bool{false, true} {
		synctest.Test(t, func(t *testing.T) {
			s, c := newServerAndClient(t, func(c *ecssim.Config) {
				c.Latency.Available, c.Latency.Modify = time.Second, 5*time.Second
				if refuse {
					c.Doubts.RefuseCreating = ecssim.CreatingActions
				}
			})
			for name, do := range map[string]func(id string) error{
				"CreateSnapshot": func(id string) error { return second(snap(c, id)) },
				"ResizeDisk":     func(id string) error { return resize(c, id, 40) },
				"ModifyDiskSpec": func(id string) error { return second(modify(c, id, toCategory("cloud_auto"))) },
			} {
				err := do(create(t, c, nil))
				if refuse {
					wantCode(t, err, 403, "IncorrectDiskStatus")
				} else if err != nil {
					t.Errorf("%s: %v", name, err)
				}
			}
			time.Sleep(time.Minute)
			if err := s.Check(); err != nil {
				t.Error(err)
			}
			for _, d := range s.Disks() {
				if d.Status != "Available" {
					t.Errorf("disk %+v, want it Available in the end", d)
				}
			}
		})
	}
}

func TestTagsHaveTheNamesThatAreSet(t *testing.T) {
	for form, want := range map[string]ecs.Tag{
		"": {TagKey: "app", TagValue: "db", Key: "app", Value: "db"}, "TagKey": {TagKey: "app", TagValue: "db"}, "Key": {Key: "app", Value: "db"},
	} {
		c := newClient(t, newServer(t, func(c *ecssim.Config) { c.Doubts.TagsAs = form }))
		create(t, c, func(r *ecs.CreateDiskRequest) { r.Tag = &[]ecs.CreateDiskTag{{Key: "app", Value: "db"}} })
		if got := describe(t, c, nil).Disks.Disk[0].Tags.Tag; len(got) != 1 || got[0] != want {
			t.Errorf("tags as %q: %+v, want %+v", form, got, want)
		}
	}
}

func TestSettingsChangeWhileItRuns(t *testing.T) {
	s := newServer(t, nil)
	wantCode(t, remove(newClient(t, s), "d-none"), 404, "InvalidDiskId.NotFound")
	var wrong *ecssim.ConfigError
	for _, values := range []map[string]string{{"forgive-unknown-disk": "true", "colour": "red"}, {"forgive-unknown-disk": "true", "tags-as": "Name"}, {"sold-out-code": "Zone.NotOnSale"}} {
		if err := s.ChangeSettings(values); !errors.As(err, &wrong) || s.SettingValues()["forgive-unknown-disk"] != "false" {
			t.Errorf("%v: error %v, settings %v", values, err, s.SettingValues())
		}
	}
	ok(t, s.ChangeSettings(map[string]string{"forgive-unknown-disk": "true", "refuse-creating": "+ResizeDisk"}))
	c := newClient(t, s)
	var asking atomic.Bool
	asking.Store(true)
	go func() {
		defer asking.Store(false)
		for range 20 {
			if err := remove(c, "d-none"); err != nil {
				t.Error(err)
			}
		}
	}()
	for asking.Load() {
		ok(t, errors.Join(s.ChangeSettings(map[string]string{"forgive-unknown-disk": "true"}), s.SetStock(zoneH, "cloud_essd", len(s.Zones()))))
	}
	if got := s.SettingValues()["refuse-creating"]; got != "ResizeDisk" {
		t.Errorf("refuse-creating is %q", got)
	}
}
