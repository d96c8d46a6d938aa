package disk

import "time"

// RequestLifetime is how long a signed request that changes something may be on
// its way to ECS: ECS refuses it after that, for its Timestamp.
const RequestLifetime = 20 * time.Second
