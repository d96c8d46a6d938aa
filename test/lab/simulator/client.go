// Package simulator starts and drives ecs-simulator, alone or with drivers that share it, and cuts it off.
package simulator

import (
	"bytes"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"net/http"
	"slices"
	"time"

	"github.com/topodisk/topodisk/diskdriver/disk"
	"github.com/topodisk/topodisk/ecssim"
)

// The names of the executables.
const (
	Program       = "ecs-simulator"
	DriverProgram = "disk-driver"
)

// The access key that the simulator knows. It opens nothing else.
const (
	KeyID  = "LTAI5tTopodiskLab"
	Secret = "the-lab-is-not-secret"
)

// The access key of an operator, which the simulator knows, too, and no policy of SetPolicy limits.
const (
	OperatorID     = "LTAI5tTopodiskOperator"
	OperatorSecret = "the-operators-is-not-secret"
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
func (c *Client) State(ctx context.Context) (ecssim.State, error) {
	var state ecssim.State
	return state, c.do(ctx, http.MethodGet, "state", nil, &state)
}

// Stats returns what is counted of the requests.
func (c *Client) Stats(ctx context.Context) (ecssim.Stats, error) {
	var stats ecssim.Stats
	return stats, c.do(ctx, http.MethodGet, "stats", nil, &stats)
}

// Disks returns the disks that exist and have that claim namespace in their tags; "" for all of them.
func (c *Client) Disks(ctx context.Context, namespace string) ([]ecssim.DiskState, error) {
	state, err := c.State(ctx)
	return slices.DeleteFunc(state.Disks, func(d ecssim.DiskState) bool {
		return namespace != "" && d.Tags[disk.ClaimNamespaceTag] != namespace
	}), err
}

// Calls returns the ledger's calls of an action, the oldest first.
func (c *Client) Calls(ctx context.Context, action string) ([]ecssim.Call, error) {
	var calls []ecssim.Call
	err := c.do(ctx, http.MethodGet, "calls", nil, &calls)
	return slices.DeleteFunc(calls, func(c ecssim.Call) bool { return action != "" && c.Action != action }), err
}

// SetStock says how many more disks of a category a zone sells.
func (c *Client) SetStock(ctx context.Context, zone, category string, units int) error {
	return c.do(ctx, http.MethodPost, "stock", map[string]any{"zone": zone, "category": category, "units": units}, nil)
}

// SellOut leaves nothing of any category in a zone; Restock undoes it.
func (c *Client) SellOut(ctx context.Context, zone string) error {
	return c.stockAll(ctx, zone, SoldOut)
}

// Restock makes everything unlimited again that a zone offers.
func (c *Client) Restock(ctx context.Context, zone string) error {
	return c.stockAll(ctx, zone, Unlimited)
}

func (c *Client) stockAll(ctx context.Context, zone string, units int) error {
	state, err := c.State(ctx)
	for _, level := range state.Stock {
		if level.Zone == zone {
			err = errors.Join(err, c.SetStock(ctx, zone, level.Category, units))
		}
	}
	return err
}

// AddFault makes calls misbehave from now on.
func (c *Client) AddFault(ctx context.Context, fault ecssim.Fault) error {
	return c.do(ctx, http.MethodPost, "faults", fault, nil)
}

// ClearFaults ends all misbehaviour.
func (c *Client) ClearFaults(ctx context.Context) error {
	return c.do(ctx, http.MethodDelete, "faults", nil, nil)
}

// AddInstance adds an instance, which runs.
func (c *Client) AddInstance(ctx context.Context, id, zone, instanceType string) error {
	return c.do(ctx, http.MethodPost, "instances", map[string]any{"id": id, "zone": zone, "type": instanceType}, nil)
}

// RemoveInstance releases an instance.
func (c *Client) RemoveInstance(ctx context.Context, id string) error {
	return c.do(ctx, http.MethodDelete, "instances", map[string]any{"id": id}, nil)
}

// SetKey has ECS know an access key by a secret, beside others; an empty one takes it away.
func (c *Client) SetKey(ctx context.Context, id, secret string) error {
	return c.do(ctx, http.MethodPost, "keys", map[string]any{"id": id, "secret": secret}, nil)
}

// SetLatency says how long things take.
func (c *Client) SetLatency(ctx context.Context, form ecssim.LatencyForm) error {
	return c.do(ctx, http.MethodPost, "latency", form, nil)
}

// Mend ends all faults, and restocks every zone.
func (c *Client) Mend(ctx context.Context) error {
	state, err := c.State(ctx)
	err = errors.Join(err, c.ClearFaults(ctx))
	for _, zone := range state.Zones {
		err = errors.Join(err, c.Restock(ctx, zone))
	}
	return err
}

// SetSpans says how long things take by the names of ecssim.Latency's fields, such as Attach; the others stay.
func (c *Client) SetSpans(ctx context.Context, spans map[string]time.Duration) error {
	words := map[string]string{}
	for name, d := range spans {
		words[name] = d.String()
	}
	return c.do(ctx, http.MethodPost, "latency", map[string]any{"spans": words}, nil)
}

// SetSpread says how far times vary (ecssim.Latency's Spread).
func (c *Client) SetSpread(ctx context.Context, spread float64) error {
	return c.do(ctx, http.MethodPost, "latency", map[string]any{"spread": spread}, nil)
}

// Advance moves the simulator's clock.
func (c *Client) Advance(ctx context.Context, d time.Duration) error {
	return c.do(ctx, http.MethodPost, "clock", map[string]any{"advance": d.String()}, nil)
}

// SetPolicy has ECS allow no more to whoever signs with KeyID than a RAM policy does; nil lifts it.
func (c *Client) SetPolicy(ctx context.Context, policy *ecssim.Policy) error {
	return c.do(ctx, http.MethodPost, "policies", map[string]any{"who": KeyID, "policy": policy}, nil)
}

// SetDoubts says how ECS behaves where its sources disagree.
func (c *Client) SetDoubts(ctx context.Context, d ecssim.Doubts) error {
	return c.do(ctx, http.MethodPost, "doubts", d, nil)
}

func (c *Client) do(ctx context.Context, method, route string, body, answer any) error {
	var text []byte
	if body != nil {
		var err error
		if text, err = json.Marshal(body); err != nil {
			return err
		}
	}
	request, err := http.NewRequestWithContext(ctx, method, c.URL+"/_sim/"+route, bytes.NewReader(text))
	if err != nil {
		return err
	}
	response, err := c.client.Do(request)
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
