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
	"net/http"
	"regexp"
	"slices"

	sdkecs "github.com/aliyun/alibaba-cloud-sdk-go/services/ecs"
	"github.com/prometheus/client_golang/prometheus"

	"github.com/topodisk/topodisk/diskdriver/disk"
	"github.com/topodisk/topodisk/diskdriver/ecs/credentials"
	"github.com/topodisk/topodisk/diskdriver/ecs/instancequeue"
	"github.com/topodisk/topodisk/diskdriver/ecs/internal/endpoint"
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
}

// Client calls ECS for the disks of one cluster in one region of one account.
// It is safe for concurrent use, and runs nothing while nobody calls it.
type Client struct {
	clusterID string
	transport *transport.Transport
	session   *transport.Session
	reads     *reads[disk.ID, disk.Disk]
	shots     *reads[disk.SnapshotID, disk.Snapshot]
	sets      *reads[disk.GroupID, disk.Group]
	tasks     *reads[disk.TaskID, sdkecs.Task]
	poller    *poller
	names     *names
	sees      *evidence
	queues    *instancequeue.Queues
	known     *known
	metrics   *metrics
}

// NewClient returns a Client, or an error that names the field of the Config,
// its value, and what is allowed. It calls nothing.
func NewClient(config Config) (*Client, error) {
	at, err := config.validate()
	if err != nil {
		return nil, err
	}
	t := transport.New(transport.Config{
		Region: config.Region, Endpoint: at, RoundTripper: config.Transport, UserAgent: cmp.Or(config.UserAgent, "topodisk"),
	})
	c := (&Client{clusterID: config.ClusterID, transport: t, metrics: newMetrics()}).as(config.Credentials)
	if config.Registerer != nil {
		for _, collector := range slices.Concat(t.Collectors(), c.metrics.collectors()) {
			if err := config.Registerer.Register(collector); err != nil {
				return nil, fmt.Errorf("ecs.Config.Registerer: %w", err)
			}
		}
	}
	return c, nil
}

// as returns a Client of the same ECS with other credentials. It shares the
// connections and the metrics; what is known of ECS by account it learns anew.
func (c *Client) as(keys credentials.Provider) *Client {
	other := &Client{
		clusterID: c.clusterID,
		transport: c.transport,
		session:   c.transport.Session(keys),
		sees:      new(evidence),
		queues:    instancequeue.New(c.metrics.countOperations),
		known:     newKnown(),
		metrics:   c.metrics,
	}
	other.reads = newReads(other.session, transport.DescribeDisks.Name, usualID, other.describeIDs, c.metrics.batchDisks)
	other.shots = newReads(other.session, transport.DescribeSnapshots.Name, usualShot, other.snapshotsByID, uncounted)
	other.sets = newReads(other.session, transport.DescribeSnapshotGroups.Name, usualGroup, other.groupsByID, uncounted)
	other.tasks = newReads(other.session, transport.DescribeTasks.Name, usualTask, other.tasksByID, uncounted)
	other.names = &names{list: other.List, alone: func(ctx context.Context, name string) ([]disk.Disk, error) {
		return other.describeAll(ctx, namedQuery(name, other.clusterID))
	}}
	other.poller = newPoller(other.reads, c.metrics.waits)
	return other
}

var userAgentForm = regexp.MustCompile(`^[!-~]+( [!-~]+)*$`)

func (c *Config) validate() (endpoint.Endpoint, error) {
	if err := endpoint.CheckRegion("ecs.Config.Region", c.Region); err != nil {
		return endpoint.Endpoint{}, err
	}
	switch {
	case c.Credentials == nil:
		return endpoint.Endpoint{}, fmt.Errorf("ecs.Config.Credentials is nil: a source of access keys is required")
	case c.ClusterID == "" || len(c.ClusterID) > 128:
		return endpoint.Endpoint{}, fmt.Errorf("ecs.Config.ClusterID %q: 1 to 128 bytes are required", c.ClusterID)
	case c.UserAgent != "" && !userAgentForm.MatchString(c.UserAgent):
		return endpoint.Endpoint{}, fmt.Errorf("ecs.Config.UserAgent %q: only printable ASCII with single spaces between words is allowed", c.UserAgent)
	}
	return endpoint.Parse("ecs.Config.Endpoint", c.Endpoint, "https")
}

// Account returns a Client of the cloud account whose keys a request's secrets
// hold, under the names that credentials.FromSecrets knows. It calls nothing.
func (c *Client) Account(secrets map[string]string) (*Client, error) {
	keys, err := credentials.FromSecrets(secrets)
	if err != nil {
		return nil, err
	}
	return c.as(credentials.Static(keys)), nil
}

// Check makes one cheap call that needs credentials and the permission to see
// disks. An error says which of the two is missing, or that ECS can't be
// reached.
func (c *Client) Check(ctx context.Context) error {
	_, err := c.describePage(ctx, checkQuery())
	return err
}
