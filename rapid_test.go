package perdure_test

import _ "pgregory.net/rapid"
