// Package ecs is the only code that knows the OpenAPI of Alibaba Cloud ECS and
// its SDK. It makes calls, waits out throttling, and says in the words of
// package disk what came of each call; it decides nothing about volumes.
//
// Every error that leaves this package is a *disk.Error. No error holds an
// access key, a security token or a signature.
package ecs

import (
	"cmp"
	"context"
	"fmt"
	"math"
	"net/http"
	"regexp"
	"slices"

	"github.com/prometheus/client_golang/prometheus"

	"github.com/topodisk/topodisk/diskdriver/disk"
	"github.com/topodisk/topodisk/diskdriver/ecs/batch"
	"github.com/topodisk/topodisk/diskdriver/ecs/credentials"
	"github.com/topodisk/topodisk/diskdriver/ecs/instancequeue"
	"github.com/topodisk/topodisk/diskdriver/ecs/internal/endpoint"
	"github.com/topodisk/topodisk/diskdriver/ecs/signature"
	"github.com/topodisk/topodisk/diskdriver/ecs/transport"
)

// Config says which ECS a Client talks to, and as whom.
type Config struct {
	// Region is the ECS region, such as cn-hangzhou. Required.
	Region string
	// Endpoint is a host, host:port or URL without a path. HTTPS is spoken
	// unless it starts with http://. Empty stands for the region's own
	// endpoint, as the SDK knows it.
	Endpoint string
	// Credentials sign every call. Required.
	Credentials credentials.Provider
	// ClusterID is the value of the tag disk.ClusterTag, by which the disks of
	// this cluster are told from others of the same account. Required.
	ClusterID string
	// Transport carries the HTTP requests; nil stands for one that reuses
	// connections and honours the proxy settings of the environment by the
	// rules of net/http.ProxyFromEnvironment.
	Transport http.RoundTripper
	// Registerer takes the metrics; nil keeps them unregistered.
	Registerer prometheus.Registerer
	// UserAgent is added to the SDK's own; empty stands for topodisk.
	UserAgent string
	// Signature is the version that requests are signed with; empty stands for V3.
	Signature signature.Version
}

// Client calls ECS for the disks of one cluster in one region of one account.
// It is safe for concurrent use, and runs nothing while nobody calls it.
//
// It has the methods of its roles, each of which is a type that holds what it
// needs and no more. They are embedded, for a Client adds nothing to them.
type Client struct {
	*disks
	*attachments
	*tagging
	*stock
	*instances
	*snapshots
	*groups
	*changes

	shared *shared
}

// shared is what the Clients of all accounts share: connections and metrics.
type shared struct {
	clusterID string
	transport *transport.Transport
	waits     *batch.Waits
	metrics   *metrics
}

// NewClient returns a Client, or an error that names the field of the Config,
// its value, and what is allowed. It calls nothing.
func NewClient(config Config) (*Client, error) {
	at, err := config.validate()
	if err != nil {
		return nil, err
	}
	s := &shared{
		clusterID: config.ClusterID,
		transport: transport.New(transport.Config{
			Region: config.Region, Endpoint: at, RoundTripper: config.Transport, UserAgent: cmp.Or(config.UserAgent, "topodisk"),
			Signature: config.Signature,
		}),
		waits:   batch.NewWaits(),
		metrics: newMetrics(),
	}
	if config.Registerer != nil {
		for _, collector := range slices.Concat(s.transport.Collectors(), s.waits.Collectors(), s.metrics.collectors()) {
			if err := config.Registerer.Register(collector); err != nil {
				return nil, fmt.Errorf("ecs.Config.Registerer: %w", err)
			}
		}
	}
	return s.client(config.Credentials), nil
}

// Account returns a Client of the cloud account whose keys a request's secrets
// hold, under the names that credentials.FromSecrets knows. It shares connections
// and metrics with this one; what is known of ECS by account it learns anew. It
// calls nothing.
func (c *Client) Account(secrets map[string]string) (*Client, error) {
	keys, err := credentials.FromSecrets(secrets)
	if err != nil {
		return nil, err
	}
	return c.shared.client(credentials.Static(keys)), nil
}

// client returns a Client of one account.
func (s *shared) client(keys credentials.Provider) *Client {
	session, queues := s.transport.Session(keys), instancequeue.New(s.metrics.countOperations)
	recent := batch.NewRecent(queues.Observe)
	describe := &describer{session: session, turn: make(chan struct{}, 1), countEmpty: s.metrics.countEmpty}
	reader := newReader(session, transport.DescribeDisks.Name, "disk", diskForm, describe.byID, s.metrics.observeBatch)
	reads := batch.NewDisks(reader, recent, s.waits, describe.checkSight)
	c := &Client{
		disks:       &disks{session: session, describe: describe, clusterID: s.clusterID, reads: reads, recent: recent},
		attachments: &attachments{session: session, queues: queues, reads: reads, recent: recent},
		tagging:     &tagging{session: session, recent: recent},
		stock:       &stock{session: session, countEmpty: s.metrics.countEmpty},
		instances:   &instances{session: session},
		snapshots:   &snapshots{session: session, countEmpty: s.metrics.countEmpty},
		changes:     &changes{session: session, recent: recent},
		shared:      s,
	}
	c.groups = &groups{session: session, snapshots: c.snapshots}
	n := &names{all: c.List, one: func(ctx context.Context, name string) ([]disk.Disk, error) {
		return describe.all(ctx, namedQuery(name, s.clusterID))
	}}
	c.names = batch.NewReader(batch.Config[string, []disk.Disk]{
		Action: transport.DescribeDisks.Name, Size: math.MaxInt, InFlight: nameBatches, Describe: n.find,
		Throttled: func() bool { return session.Throttled(transport.DescribeDisks.Name) },
	})
	c.snapshots.reads = newReader(session, transport.DescribeSnapshots.Name, "snapshot", snapshotForm, c.snapshots.byID, nil)
	c.groups.reads = newReader(session, transport.DescribeSnapshotGroups.Name, "snapshot group", groupForm, c.groups.byID, nil)
	c.tasks = newReader(session, transport.DescribeTasks.Name, "task", taskForm, c.changes.byID, nil)
	return c
}

// newReader returns a Reader whose calls are those of a Session.
func newReader[K ~string, V any](
	s *transport.Session, action, noun string, form *regexp.Regexp, describe func(context.Context, []K) (map[K]V, error), observe func(int),
) *batch.Reader[K, V] {
	return batch.NewReader(batch.Config[K, V]{
		Action: action, Noun: noun, Form: form, Describe: describe, Throttled: func() bool { return s.Throttled(action) }, Observe: observe,
	})
}

func (c *Config) validate() (endpoint.Endpoint, error) {
	if err := endpoint.CheckRegion("ecs.Config.Region", c.Region); err != nil {
		return endpoint.Endpoint{}, err
	}
	switch {
	case c.Credentials == nil:
		return endpoint.Endpoint{}, fmt.Errorf("ecs.Config.Credentials is nil: a source of access keys is required")
	case c.ClusterID == "" || len(c.ClusterID) > 128:
		return endpoint.Endpoint{}, fmt.Errorf("ecs.Config.ClusterID %q: 1 to 128 bytes are required", c.ClusterID)
	}
	if err := cmp.Or(c.Signature, signature.V3).Check(); err != nil {
		return endpoint.Endpoint{}, fmt.Errorf("ecs.Config.Signature: %w", err)
	}
	return endpoint.Parse("ecs.Config.Endpoint", c.Endpoint, "https")
}

// Check makes one cheap call that needs credentials and the permission to see
// disks. An error says which of the two is missing, or that ECS can't be
// reached.
func (c *Client) Check(ctx context.Context) error {
	_, err := c.disks.describe.page(ctx, anyDisk)
	return err
}
