// Package simulator starts and drives ecs-simulator, alone or with drivers that share it, and cuts it off.
package simulator

import (
	"bytes"
	"context"
	"encoding/json"
	"fmt"
	"io"
	"net/http"
	"slices"
	"time"

	"github.com/topodisk/topodisk/diskdriver/disk"
	"github.com/topodisk/topodisk/ecssim"
)

// Program is the simulator's, and DriverProgram the driver's.
const (
	Program       = "ecs-simulator"
	DriverProgram = "disk-driver"
)

// The access key that the simulator knows. It opens nothing else.
const (
	KeyID  = "LTAI5tTopodiskLab"
	Secret = "the-lab-is-not-secret"
)

// ClusterID is the --cluster-id of drivers that use it.
const ClusterID = "lab"

// SoldOut and Unlimited are values of SetStock.
const (
	SoldOut   = 0
	Unlimited = -1
)

// Client is the admin API of an ecs-simulator.
type Client struct {
	URL    string
	client *http.Client
}

// New returns the admin API of the simulator at that URL.
func New(url string) *Client {
	return &Client{URL: url, client: &http.Client{Timeout: 10 * time.Second}}
}

// State returns zones, disks, stock and counts of calls at this moment.
func (s *Client) State(ctx context.Context) (ecssim.State, error) {
	var state ecssim.State
	return state, s.do(ctx, http.MethodGet, "state", nil, &state)
}

// Disks returns the disks that exist and have that claim namespace in their tags; "" for all of them.
func (s *Client) Disks(ctx context.Context, namespace string) ([]ecssim.DiskState, error) {
	state, err := s.State(ctx)
	return slices.DeleteFunc(state.Disks, func(d ecssim.DiskState) bool {
		return namespace != "" && d.Tags[disk.ClaimNamespaceTag] != namespace
	}), err
}

// Calls returns the ledger's calls of an action, the oldest first.
func (s *Client) Calls(ctx context.Context, action string) ([]ecssim.Call, error) {
	var calls []ecssim.Call
	err := s.do(ctx, http.MethodGet, "calls", nil, &calls)
	return slices.DeleteFunc(calls, func(c ecssim.Call) bool { return action != "" && c.Action != action }), err
}

// SetStock says how many more disks of a category a zone sells.
func (s *Client) SetStock(ctx context.Context, zone, category string, units int) error {
	return s.do(ctx, http.MethodPost, "stock", map[string]any{"zone": zone, "category": category, "units": units}, nil)
}

// SellOut leaves nothing of any category in a zone; Restock undoes it.
func (s *Client) SellOut(ctx context.Context, zone string) error {
	return s.stockAll(ctx, zone, SoldOut)
}

// Restock makes everything unlimited again that a zone offers.
func (s *Client) Restock(ctx context.Context, zone string) error {
	return s.stockAll(ctx, zone, Unlimited)
}

func (s *Client) stockAll(ctx context.Context, zone string, units int) error {
	state, err := s.State(ctx)
	if err != nil {
		return err
	}
	for _, level := range state.Stock {
		if level.Zone != zone {
			continue
		}
		if err := s.SetStock(ctx, zone, level.Category, units); err != nil {
			return err
		}
	}
	return nil
}

// AddFault makes calls misbehave from now on.
func (s *Client) AddFault(ctx context.Context, fault ecssim.Fault) error {
	return s.do(ctx, http.MethodPost, "faults", fault, nil)
}

// ClearFaults ends all misbehaviour.
func (s *Client) ClearFaults(ctx context.Context) error {
	return s.do(ctx, http.MethodDelete, "faults", nil, nil)
}

// AddInstance adds an instance, which runs.
func (s *Client) AddInstance(ctx context.Context, id, zone, instanceType string) error {
	return s.do(ctx, http.MethodPost, "instances", map[string]any{"id": id, "zone": zone, "type": instanceType}, nil)
}

// RemoveInstance releases an instance.
func (s *Client) RemoveInstance(ctx context.Context, id string) error {
	return s.do(ctx, http.MethodDelete, "instances", map[string]any{"id": id}, nil)
}

// SetKey has ECS know an access key by a secret, beside others; an empty one takes it away.
func (s *Client) SetKey(ctx context.Context, id, secret string) error {
	return s.do(ctx, http.MethodPost, "keys", map[string]any{"id": id, "secret": secret}, nil)
}

// SetLatency says how long things take.
func (s *Client) SetLatency(ctx context.Context, form ecssim.LatencyForm) error {
	return s.do(ctx, http.MethodPost, "latency", form, nil)
}

// SetSpans says how long things take by the names of ecssim.Latency's fields, such as Attach; the others stay.
func (s *Client) SetSpans(ctx context.Context, spans map[string]time.Duration) error {
	words := map[string]string{}
	for name, d := range spans {
		words[name] = d.String()
	}
	return s.do(ctx, http.MethodPost, "latency", map[string]any{"spans": words}, nil)
}

// Advance moves the simulator's clock.
func (s *Client) Advance(ctx context.Context, d time.Duration) error {
	return s.do(ctx, http.MethodPost, "clock", map[string]any{"advance": d.String()}, nil)
}

// SetPolicy has ECS allow no more to whoever signs with KeyID than a RAM policy does; nil lifts it.
func (s *Client) SetPolicy(ctx context.Context, policy *ecssim.Policy) error {
	return s.do(ctx, http.MethodPost, "policies", map[string]any{"who": KeyID, "policy": policy}, nil)
}

// SetDoubts says how ECS behaves where its sources disagree.
func (s *Client) SetDoubts(ctx context.Context, d ecssim.Doubts) error {
	return s.do(ctx, http.MethodPost, "doubts", d, nil)
}

func (s *Client) do(ctx context.Context, method, route string, body, answer any) error {
	var text []byte
	if body != nil {
		var err error
		if text, err = json.Marshal(body); err != nil {
			return err
		}
	}
	request, err := http.NewRequestWithContext(ctx, method, s.URL+"/_sim/"+route, bytes.NewReader(text))
	if err != nil {
		return err
	}
	response, err := s.client.Do(request)
	if err != nil {
		return err
	}
	defer response.Body.Close()
	said, err := io.ReadAll(response.Body)
	if err != nil {
		return err
	}
	if response.StatusCode != http.StatusOK {
		return fmt.Errorf("simulator: %s %s: %s: %s", method, route, response.Status, said)
	}
	if answer == nil {
		return nil
	}
	return json.Unmarshal(said, answer)
}
