-- SELECT r.a, s.y FROM r LEFT JOIN s ON r.a = s.a AND s.y > 0

-- @: rows, key _hw_key_1, _hw_key_2, changes signed
SELECT
  `a` AS `a`,
  `y` AS `y`,
  `_hw_key_1` AS `_hw_key_1`,
  `_hw_key_2` AS `_hw_key_2`,
  `_hw_file` AS `_hw_file`,
  `_hw_position` AS `_hw_position`,
  `_hw_row` AS `_hw_row`,
  `_hw_w`
FROM (
  SELECT
    `a`,
    `y`,
    `_hw_key_1`,
    `_hw_key_2`,
    `_hw_old__hw_key_1`,
    `_hw_old__hw_key_2`,
    `_hw_file`,
    `_hw_position`,
    `_hw_row`,
    `_hw_w`
  FROM (
    SELECT
      `a`,
      `y`,
      `_hw_key_1`,
      `_hw_key_2`,
      CAST(SUM(`_hw_w`) AS INT) AS `_hw_w`
    FROM (
      SELECT
        `a` AS `a`,
        `y` AS `y`,
        `r_rowid` AS `_hw_key_1`,
        `s_rowid` AS `_hw_key_2`,
        `_hw_w`
      FROM (
        SELECT
          `a` AS `a`,
          `y` AS `y`,
          `r_rowid`,
          `s_rowid`,
          `_hw_w`
        FROM (
          SELECT
            `a`,
            `a_2`,
            `y`,
            `r_rowid`,
            `s_rowid`,
            `_hw_w`
          FROM (
            SELECT
              `a`,
              `a_2`,
              `y`,
              `r_rowid`,
              `s_rowid`,
              `_hw_w`
            FROM (
              SELECT
                `a` AS `a`,
                `rowid` AS `r_rowid`,
                `_hw_w`
              FROM `r@delta`
            ) AS _l
            LEFT JOIN (
              SELECT
                _l.`a_2`,
                _l.`y`,
                _l.`s_rowid`
              FROM (
                SELECT
                  `a` AS `a_2`,
                  `y` AS `y`,
                  `rowid` AS `s_rowid`
                FROM `s@old`
              ) AS _l
              LEFT SEMI JOIN (
                SELECT
                  `_hw_key_0`
                FROM (
                  SELECT
                    `a` AS `_hw_key_0`,
                    `r_rowid`,
                    `_hw_w`
                  FROM (
                    SELECT
                      `a` AS `a`,
                      `rowid` AS `r_rowid`,
                      `_hw_w`
                    FROM `r@delta`
                  ) AS _t
                ) AS _t
                GROUP BY
                  `_hw_key_0`
              ) AS _r
                ON `a_2` IS NOT DISTINCT FROM `_hw_key_0`
            ) AS _r
              ON `a` = `a_2` AND `y` > 0
          ) AS _t
          UNION ALL
          SELECT
            `a`,
            `a_2`,
            `y`,
            `r_rowid`,
            `s_rowid`,
            `_hw_w`
          FROM (
            SELECT
              `a`,
              `a_2`,
              `y`,
              `r_rowid`,
              `s_rowid`,
              CAST(1 AS INT) AS `_hw_w`
            FROM (
              SELECT
                `a`,
                `a_2`,
                `y`,
                `r_rowid`,
                `s_rowid`
              FROM (
                SELECT
                  _l.`a`,
                  _l.`r_rowid`
                FROM (
                  SELECT
                    `a` AS `a`,
                    `rowid` AS `r_rowid`
                  FROM `r@new`
                ) AS _l
                LEFT SEMI JOIN (
                  SELECT
                    `_hw_key_0`
                  FROM (
                    SELECT
                      `a_2` AS `_hw_key_0`,
                      `s_rowid`,
                      `_hw_w`
                    FROM (
                      SELECT
                        `a` AS `a_2`,
                        `y` AS `y`,
                        `rowid` AS `s_rowid`,
                        `_hw_w`
                      FROM `s@delta`
                    ) AS _t
                  ) AS _t
                  GROUP BY
                    `_hw_key_0`
                ) AS _r
                  ON `a` IS NOT DISTINCT FROM `_hw_key_0`
              ) AS _l
              LEFT JOIN (
                SELECT
                  _l.`a_2`,
                  _l.`y`,
                  _l.`s_rowid`
                FROM (
                  SELECT
                    `a` AS `a_2`,
                    `y` AS `y`,
                    `rowid` AS `s_rowid`
                  FROM `s@new`
                ) AS _l
                LEFT SEMI JOIN (
                  SELECT
                    `_hw_key_0`
                  FROM (
                    SELECT
                      `a_2` AS `_hw_key_0`,
                      `s_rowid`,
                      `_hw_w`
                    FROM (
                      SELECT
                        `a` AS `a_2`,
                        `y` AS `y`,
                        `rowid` AS `s_rowid`,
                        `_hw_w`
                      FROM `s@delta`
                    ) AS _t
                  ) AS _t
                  GROUP BY
                    `_hw_key_0`
                ) AS _r
                  ON `a_2` IS NOT DISTINCT FROM `_hw_key_0`
              ) AS _r
                ON `a` = `a_2` AND `y` > 0
            ) AS _t
          ) AS _t
          UNION ALL
          SELECT
            `a`,
            `a_2`,
            `y`,
            `r_rowid`,
            `s_rowid`,
            `_hw_w`
          FROM (
            SELECT
              `a`,
              `a_2`,
              `y`,
              `r_rowid`,
              `s_rowid`,
              CAST(-1 AS INT) AS `_hw_w`
            FROM (
              SELECT
                `a`,
                `a_2`,
                `y`,
                `r_rowid`,
                `s_rowid`
              FROM (
                SELECT
                  _l.`a`,
                  _l.`r_rowid`
                FROM (
                  SELECT
                    `a` AS `a`,
                    `rowid` AS `r_rowid`
                  FROM `r@new`
                ) AS _l
                LEFT SEMI JOIN (
                  SELECT
                    `_hw_key_0`
                  FROM (
                    SELECT
                      `a_2` AS `_hw_key_0`,
                      `s_rowid`,
                      `_hw_w`
                    FROM (
                      SELECT
                        `a` AS `a_2`,
                        `y` AS `y`,
                        `rowid` AS `s_rowid`,
                        `_hw_w`
                      FROM `s@delta`
                    ) AS _t
                  ) AS _t
                  GROUP BY
                    `_hw_key_0`
                ) AS _r
                  ON `a` IS NOT DISTINCT FROM `_hw_key_0`
              ) AS _l
              LEFT JOIN (
                SELECT
                  _l.`a_2`,
                  _l.`y`,
                  _l.`s_rowid`
                FROM (
                  SELECT
                    `a` AS `a_2`,
                    `y` AS `y`,
                    `rowid` AS `s_rowid`
                  FROM `s@old`
                ) AS _l
                LEFT SEMI JOIN (
                  SELECT
                    `_hw_key_0`
                  FROM (
                    SELECT
                      `a_2` AS `_hw_key_0`,
                      `s_rowid`,
                      `_hw_w`
                    FROM (
                      SELECT
                        `a` AS `a_2`,
                        `y` AS `y`,
                        `rowid` AS `s_rowid`,
                        `_hw_w`
                      FROM `s@delta`
                    ) AS _t
                  ) AS _t
                  GROUP BY
                    `_hw_key_0`
                ) AS _r
                  ON `a_2` IS NOT DISTINCT FROM `_hw_key_0`
              ) AS _r
                ON `a` = `a_2` AND `y` > 0
            ) AS _t
          ) AS _t
        ) AS _t
      ) AS _t
    ) AS _t
    GROUP BY
      `a`,
      `y`,
      `_hw_key_1`,
      `_hw_key_2`
    HAVING
      SUM(`_hw_w`) <> 0
  ) AS _l
  LEFT JOIN (
    SELECT
      `_hw_key_1` AS `_hw_old__hw_key_1`,
      `_hw_key_2` AS `_hw_old__hw_key_2`,
      `_hw_file` AS `_hw_file`,
      `_hw_position` AS `_hw_position`,
      `_hw_row` AS `_hw_row`
    FROM `@@old`
  ) AS _r
    ON `_hw_key_1` IS NOT DISTINCT FROM `_hw_old__hw_key_1`
    AND `_hw_key_2` IS NOT DISTINCT FROM `_hw_old__hw_key_2`
) AS _t
