package facts

import (
	"slices"
	"strings"
	"testing"
	"testing/synctest"

	"github.com/topodisk/topodisk/ecssim"
)

const (
	testKey    = "test-key"
	testSecret = "test-secret"
)

// newSimulator returns a simulator with the latencies that clients see, and a
// client of it.
func newSimulator(t *testing.T, change func(*ecssim.Config) error) (*ecssim.Server, *Client) {
	t.Helper()
	latency, err := ecssim.Profile("real")
	if err != nil {
		t.Fatal(err)
	}
	config := ecssim.Config{
		Region: "cn-hangzhou", Zones: []string{"cn-hangzhou-h", "cn-hangzhou-i"}, AccessKeys: map[string]string{testKey: testSecret}, Latency: latency,
		InstanceTypes: []ecssim.InstanceType{
			{ID: "ecs.facts.large", DiskQuantity: 17, NVMe: "required"},
			{ID: "ecs.facts.dense", DiskQuantity: 65, NVMe: "unsupported"},
		},
		Instances: []ecssim.Instance{
			{ID: "i-1", Zone: "cn-hangzhou-h", Type: "ecs.facts.large", Role: roleName},
			{ID: neighbour, Zone: "cn-hangzhou-h", Type: "ecs.facts.large"},
			{ID: denseInstance, Zone: "cn-hangzhou-h", Type: "ecs.facts.dense"},
			{ID: "i-g7", Zone: "cn-hangzhou-i", Type: "ecs.g7.large"},
		},
		Roles: []ecssim.Role{{Name: roleName, OIDCProvider: provider, Subject: subject, Audience: audience}},
	}
	if change != nil {
		if err := change(&config); err != nil {
			t.Fatal(err)
		}
	}
	sim, err := ecssim.New(config)
	if err != nil {
		t.Fatal(err)
	}
	return sim, &Client{Next: sim, Endpoint: "http://ecs.test", KeyID: testKey, Secret: testSecret, Region: config.Region, Zone: config.Zones[0], Instance: "i-1", Run: "test"}
}

func TestSimulatorAgreesWithEveryFact(t *testing.T) {
	for _, f := range Facts() {
		t.Run(f.Name(), func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				sim, c := newSimulator(t, nil)
				if r, _ := Ask(t.Context(), f, c, sim); r.Outcome != Agrees {
					t.Errorf("%+v", r)
				}
				if err := sim.Check(); err != nil {
					t.Error(err)
				}
			})
		})
	}
}

func TestSimulatorCanBehaveInEveryWay(t *testing.T) {
	for _, f := range Facts() {
		for i, w := range f.Ways {
			t.Run(f.Name()+" "+w.Says, func(t *testing.T) {
				synctest.Test(t, func(t *testing.T) {
					sim, c := newSimulator(t, w.Apply)
					r, _ := Ask(t.Context(), f, c, sim)
					if r.Observed != w.Says || (r.Outcome == Agrees) != (i == 0) {
						t.Errorf("%+v", r)
					}
					if err := sim.Check(); err != nil {
						t.Error(err)
					}
				})
			})
		}
	}
}

// The first way of each fact is the simulator's default, and each setting
// belongs to one fact or, element by element, to several.
func TestWaysAndSettingsGoTogether(t *testing.T) {
	owner := map[string]string{}
	for _, f := range Facts() {
		for i, w := range f.Ways {
			config := ecssim.Config{}
			for _, s := range ecssim.Settings() {
				value, ok := w.Settings[s.Name]
				if !ok {
					continue
				}
				before := s.Get(config)
				if err := s.Set(&config, value); err != nil {
					t.Error(err)
				}
				if i == 0 && s.Get(config) != before {
					t.Errorf("%s: the first way sets --%s=%s, which is not the default", f.Name(), s.Name, value)
				}
				key := s.Name + strings.TrimLeft(value, "+-")
				if !s.List {
					key = s.Name
				}
				if other := owner[key]; other != "" && other != f.Name() {
					t.Errorf("%s and %s both set %s", f.Name(), other, key)
				}
				owner[key] = f.Name()
			}
			if len(w.Settings) == 0 {
				t.Errorf("%s: the way %q sets nothing", f.Name(), w.Says)
			}
		}
	}
	for _, s := range ecssim.Settings() {
		for _, value := range s.Values {
			if !s.List && owner[s.Name] == "" || s.List && s.Name != "snapshot-unattached" && owner[s.Name+value] == "" {
				t.Errorf("no fact asks for --%s=%s", s.Name, value)
			}
		}
	}
}

func TestFactsAreNamedOnceAndHaveASource(t *testing.T) {
	var names []string
	for _, f := range Facts() {
		if slices.Contains(names, f.Name()) || f.Action == "" || f.Says == "" || f.Source == "" || (f.check == nil) != (len(f.Ways) > 1) || (f.observe == nil) == (f.check == nil) {
			t.Errorf("%s is there twice or lacks something", f.Name())
		}
		names = append(names, f.Name())
	}
}
