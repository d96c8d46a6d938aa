package facts

import (
	"context"
	"fmt"
	"net/http"
)

// Verify finds out whether a run can begin: ECS takes the key, and the
// instance, if there is one, is in the zone and running.
func (c *Client) Verify(ctx context.Context) error {
	pairs := []string{"ZoneId", c.Zone}
	if c.Instance != "" {
		pairs = append(pairs, "InstanceIds", idList(c.Instance))
	}
	answer, err := c.call(ctx, "DescribeInstances", pairs...)
	switch {
	case err != nil:
		return fmt.Errorf("%s does not answer: %s", c.Endpoint, c.redact(err.Error()))
	case answer.status != http.StatusOK:
		return fmt.Errorf("DescribeInstances was %s", answer.outcome())
	case c.Instance == "":
		return nil
	}
	list := answer.rows("Instances", "Instance")
	if len(list) == 0 {
		return fmt.Errorf("instance %q is not shown in zone %s: allowed is one of that zone", c.Instance, c.Zone)
	}
	if status := list[0].text("Status"); status != "Running" {
		return fmt.Errorf("instance %q is %s: allowed is one that is Running", c.Instance, status)
	}
	return nil
}
