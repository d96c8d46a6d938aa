package disk

import "time"

// RequestLifetime is how long a signed request that changes something may be on
// its way to ECS: ECS refuses it after that, for its Timestamp. One that takes no
// Timestamp from the past gets requests without that bound, which is logged.
const RequestLifetime = 20 * time.Second
